package main

import (
	"strings"
	"testing"
)

const said = `Running 1s test @ http://127.0.0.1:1/
  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.19ms    1.40ms  21.37ms   87.68%
    Req/Sec    38.52k     4.01k   46.17k    65.00%
  76712 requests in 1.00s, 9.95MB read
  Non-2xx or 3xx responses: 12
Requests/sec:  76561.25
Transfer/sec:      9.93MB
`

func TestParseReadsWrk(t *testing.T) {
	m, err := parse(said)
	if want := (measurement{rate: 76561.25, requests: 76712, refused: 12}); err != nil || m != want {
		t.Errorf("got %+v, %v; want %+v", m, err, want)
	}
	broken := strings.Replace(said, "Requests/sec", "Socket errors: connect 1\nRequests/sec", 1)
	if _, err := parse(broken); err == nil {
		t.Error("socket errors were overlooked")
	}
}
