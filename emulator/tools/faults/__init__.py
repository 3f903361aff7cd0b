"""What a kernel did wrong: usual mistakes, made one after another until the wrong D comes out."""
