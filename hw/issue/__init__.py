"""From blocks of tiles in memory to the streams of the array."""
