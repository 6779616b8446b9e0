"""Draws a live view of a running job, in a terminal and as a web page. It is computed in `hotlap.watch.live`."""
