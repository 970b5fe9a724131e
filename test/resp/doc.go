// Package resp holds real clients of Redis to the service: go-redis and rueidis, redis-cli and
// redis-benchmark, ioredis and node-redis, redis-py, each with its default options, and the first words
// of Jedis, Lettuce and StackExchange.Redis, and the scripts of the JVM's, as their sources have them. It
// also compares CL.THROTTLE with the documented examples of redis-cell.
//
// `make test/resp/node/node_modules` installs the two clients that run in Node.js. There is nothing
// in it but tests.
package resp
