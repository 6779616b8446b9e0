"""One file per seam. A tap listens: `install(session)` puts it in place."""
