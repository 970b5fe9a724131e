package promlimit

import "strconv"

// RedisMemory sums the memory of a store's servers.
type RedisMemory struct {
	Used    int64 // bytes
	Max     int64 // bytes; 0: a server has no limit
	Evicted int64 // keys
}

// Memory sums what the servers that answered said last; the zero value if none did.
func (c *RedisCollector) Memory() (sum RedisMemory) {
	bounded := true
	for _, sample := range *c.samples.Load() {
		if sample.info == nil {
			continue
		}
		number := func(name string) int64 {
			n, _ := strconv.ParseInt(sample.info[name], 10, 64) // 0 if the server does not tell
			return n
		}
		most := number("maxmemory")
		bounded = bounded && most > 0
		sum.Used, sum.Max, sum.Evicted = sum.Used+number("used_memory"), sum.Max+most, sum.Evicted+number("evicted_keys")
	}
	if !bounded {
		sum.Max = 0
	}
	return sum
}
