"""Plans: their files, the knobs they may name, and the record of what became of them in a process."""
