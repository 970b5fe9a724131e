package redisstore

// Shards is how many parts of the store can fail by themselves: one on a single server,
// with Sentinel or without, and on a cluster the partitions, since each is in one slot.
func (s *Store) Shards() int { return len(s.lanes) }

// Shard is the part of the store that a client's states are in, from 0 to below
// [Store.Shards]. Keys with one hash tag in common are in one part.
func (s *Store) Shard(key string) int {
	if len(s.lanes) == 1 {
		return 0
	}
	return s.partition(key)
}
