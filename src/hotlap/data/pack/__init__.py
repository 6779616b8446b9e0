"""Once-only conversion into shards: sources, the work on one shard, the workers, and what makes it safe to cut off."""
