package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/redisconn"
)

// floorScripts reserve and commit a hold of each of n clients, in one call each, and decide nothing: they read, find, pack,
// write and answer what the formats of states, ids and replies have of a hold (wire/hold_lists.lua, hold_ids.lua), of one
// sliding window counter, whose client has no other hold.
//
// KEYS: settings, states, ids. ARGV: n; n clients; n fields of the ids; the operations as first_part_holds.lua has them.
// The third reads and writes a state alone, as of a take, and names no id.
var floorScripts = [3]string{floorBegin + `
  local text
  text, from = unpack_struct('>I2c0', list, from)
  local _, a, b, c = unpack_struct('>Bi5I4I4', states[i + 1])
  local expires = now + y
  local piece = pack('>c8I7I6BI7I7', digest, expires, permits, 2, a, 0)
  writes[2 * i] = pack('>Bc0i8i8i8i8i8I4c0', 64, 'parameter', a, b, c + permits, 0, permits, 1, piece)
  local bucket = ids[i + 1] or '\0\0\0\0'
  records[2 * i] = pack('>I4I2c8I7c0c0', unpack_struct('>I4', bucket) + #text + 17, #text + 17, digest, expires, text,
    sub(bucket, 5))
  answers[i] = pack('>BI6I7I7I7I6', 0, 0, a, b, c, permits)
` + floorEnd, floorBegin + `
  local bucket, value = ids[i + 1], states[i + 1]
  local a, b, c, _, _, _, at = unpack_struct('>i8i8i8i8i8I4', value, 11)
  local found, piece = find(bucket, digest, 5, true), find(value, digest, at, true)
  local length, expires, remembered, _, _, _, _, amounts = unpack_struct('>I2xxxxxxxxI7I5I4I4BI2', bucket, found - 2)
  local _, _ = unpack_struct('>I6I6', bucket, amounts)
  local _ = unpack_struct('>I6BI7I7', value, piece + 15)
  writes[2 * i] = pack('>Bi5I4I4', 0, a, b, c - 1)
  records[2 * i] = pack('>I4c0c0c8BI7I5I4i6', unpack_struct('>I4', bucket) - length, sub(bucket, 5, found - 3),
    sub(bucket, found - 2 + length), digest, 1, now, remembered, z, -1)
  answers[i] = pack('>BI6I7I7I7I6', 0, 1, a, b, c, 0)
` + floorEnd, strings.ReplaceAll(floorBegin, "n + 2, 2 * n + 1", "n + 2, n + 1") + `
  local _, a, b, c = unpack_struct('>Bi5I4I4', states[i + 1])
  writes[2 * i] = pack('>Bi5I4I4', 0, a, b, c + permits)
  answers[i] = states[i + 1]
` + strings.Replace(floorEnd, "redis.call('HSET', KEYS[3], unpack(records))\n", "", 1)}

const floorBegin = `local unpack_struct, pack, sub, find = struct.unpack, struct.pack, string.sub, string.find
local n, time = tonumber(ARGV[1]), redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('HMGET', KEYS[1], 'layout', 'all', ':p')
local states = redis.call('HMGET', KEYS[2], '', unpack(ARGV, 2, n + 1))
local ids = redis.call('HMGET', KEYS[3], '', unpack(ARGV, n + 2, 2 * n + 1))
local list, from, answers, writes, records = ARGV[#ARGV], 1, {}, {}, {}
for i = 1, n do
  local verb, asked, count, number, digest, x, y, z, place, permits, keep
  verb, asked, count, number, digest, x, y, z, place, permits, keep, from =
    unpack_struct('>BBI2I2c8I4I4I5I2i8I4', list, from)
  writes[2 * i - 1], records[2 * i - 1] = ARGV[i + 1], ARGV[n + i + 1]
`

const floorEnd = `end
redis.call('HSET', KEYS[2], unpack(writes))
redis.call('HSET', KEYS[3], unpack(records))
return table.concat(answers)
`

// BenchmarkHoldFloor is what a pair costs the server at least, as long as its formats are what they are, a reserve of it, and
// a read and a write of a state alone: a call has as many operations as BenchmarkHold's of 512 clients have.
func BenchmarkHoldFloor(b *testing.B) {
	for name, order := range map[string][]int{"state": {2}, "reserve": {0}, "pair": {0, 1}} {
		b.Run(name, func(b *testing.B) { benchmarkFloor(b, order) })
	}
}

// benchmarkFloor makes calls of floorScripts by turns.
func benchmarkFloor(b *testing.B, order []int) {
	const n = 186
	conn, ctx := newConn(b), b.Context()
	keys, clients := []string{"floor:settings", "floor:states", "floor:ids"}, make([]string, n)
	if _, err := conn.Do(ctx, append([]string{"DEL"}, keys...)...); err != nil {
		b.Fatal(err)
	}
	for i := range clients {
		clients[i] = "client-" + strconv.Itoa(i)
		state := string(binary.BigEndian.AppendUint64([]byte{0, 0, 0, 0, 0, 0}, 1<<32+2))
		if _, err := conn.Do(ctx, "HSET", keys[1], clients[i], state); err != nil {
			b.Fatal(err)
		}
	}
	calls := make([][3][]string, b.N/n+1)
	for i := range calls {
		calls[i] = floorCalls(i, clients)
	}
	var scripts [3]*redisconn.Script
	for i, source := range floorScripts {
		scripts[i] = redisconn.NewScript(source)
	}
	before := serverTime(b)
	b.ResetTimer()
	for _, call := range calls {
		for _, script := range order {
			if _, err := conn.Eval(ctx, scripts[script], keys, call[script]); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric((serverTime(b)-before)/float64(len(calls)*n), "us_of_server")
}

// floorCalls are the arguments of two calls, which reserve and commit a hold of each client, and of one without ids.
func floorCalls(round int, clients []string) (calls [3][]string) {
	for verb := range 2 {
		args, fields, list := append([]string{strconv.Itoa(len(clients))}, clients...), []string(nil), []byte(nil)
		for i := range clients {
			at := uint64(round*len(clients) + i)
			digest := binary.BigEndian.AppendUint64(nil, at*0x9e3779b97f4a7c15)
			fields = append(fields, string(binary.BigEndian.AppendUint16([]byte{0}, uint16(at)))) // no two are the same
			list = append(append(list, byte(verb), 0, 0, 1, 0, byte(i)), digest...)
			list = append(list, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1) // the TTL and more
			list = append(list, 0, byte(i), 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0)
			if verb == 0 {
				record := append([]byte("5 for"+"8 claims"), 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0)
				record = append(record, fmt.Sprintf("caller-%d-request-%d\x00\x00\x00\x00\x00\x00\x00\x00", i, round)...)
				list = append(binary.BigEndian.AppendUint16(list, uint16(len(record))), record...)
			}
		}
		calls[verb] = append(append(slices.Clip(args), fields...), string(list))
		calls[2] = append(slices.Clip(args), string(list))
	}
	return calls
}
