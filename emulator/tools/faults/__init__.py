"""The fault finder: makes usual mistakes one after another until the wrong D comes out."""
