"""Why a result came out as it did, and where two results part."""
