package redisstore

// Shards is how many parts of the store can fail by themselves: one on a single server,
// with Sentinel or without, and on a cluster the partitions, since each is in one slot: those
// that Options say, or DefaultClusterPartitions. Where more are adopted, several fail together.
func (s *Store) Shards() int { return s.shards }

// Shard is the part of the store that a client's states are in, from 0 to below
// [Store.Shards]. Keys with one hash tag in common are in one part.
func (s *Store) Shard(key string) int {
	return int(hashOf(key) % uint64(s.shards))
}
