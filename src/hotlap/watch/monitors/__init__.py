"""One file per monitor. A monitor is fed with numbers and keeps a fixed number of them; none of them needs torch."""
