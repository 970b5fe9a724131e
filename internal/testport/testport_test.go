package testport

import (
	"net"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// A port that is held is not given again, nor one on which somebody listens.
func TestTake(t *testing.T) {
	const above = 10_000
	var none Port
	seen := map[int]bool{}
	for range 500 {
		p := must.Get(Take(above))(t)
		defer p.Close()
		if seen[p.Number] || p.Number < lowest || p.Number >= lowest+count {
			t.Fatalf("port %d", p.Number)
		}
		seen[p.Number] = true
		for _, n := range []int{p.Number, p.Number + above} {
			if none.hold(n, nil) {
				t.Errorf("port %d is given twice", n)
			}
			must.Do(t, must.Get(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: n}))(t).Close())
		}
	}
	listener := must.Get(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer func() { _ = listener.Close() }()
	if n := listener.Addr().(*net.TCPAddr).Port; none.hold(n, nil) {
		t.Errorf("port %d is given, on which somebody listens", n)
	}
	p := must.Get(Take())(t)
	p.Close()
	if again := (&Port{}); !again.hold(p.Number, nil) {
		t.Errorf("port %d is held after its end", p.Number)
	} else {
		again.Close()
	}
}
