package main

import (
	"context"
	"flag"
	"net"
	"time"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/internal/sleep"
)

// relayMode as the first argument makes the program a relay.
const relayMode = "relay"

// relay is a TCP proxy that stands for a slow network: it keeps what it carries, each way,
// for half of a delay. A process of its own, so that it takes no turns of the callers.
func relay(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("redis "+relayMode, flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	to := flags.String("to", "", "address to connect to")
	var delay time.Duration
	cli.Number(flags, &delay, "delay", 0, 0, time.Second, "what is added to a round trip")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	return cli.Serve(ctx, *listen, func(listener net.Listener) error { return forward(ctx, listener, *to, delay/2) })
}

// A chunk is what was read at once, on its way.
type chunk struct {
	due  time.Time
	to   net.Conn
	data []byte // none: nothing more comes
}

// forward serves connections until the listener is closed. Since every chunk is kept for
// the same time, all leave in the order in which they came, of whichever connection: one
// queue and one writer suffice. The sockets' buffers hold what is on its way, so a write
// does not wait for the reader at the other end.
func forward(ctx context.Context, listener net.Listener, to string, delay time.Duration) error {
	const onTheWay = 1 << 16
	queue := make(chan chunk, onTheWay)
	go func() {
		for c := range queue {
			for d := time.Until(c.due); d > 0; d = time.Until(c.due) {
				sleep.Thread(d)
			}
			if len(c.data) == 0 {
				_ = c.to.Close()
			} else {
				_, _ = c.to.Write(c.data) // the reader of a closed connection reports it
			}
		}
	}()
	carry := func(from, to net.Conn) {
		const most = 1 << 16
		buffer := make([]byte, most)
		for {
			n, err := from.Read(buffer)
			due := time.Now().Add(delay)
			if n > 0 {
				queue <- chunk{due, to, append([]byte(nil), buffer[:n]...)}
			}
			if err != nil {
				queue <- chunk{due: due, to: to}
				return
			}
		}
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(ctx, "tcp", to)
		if err != nil {
			_ = client.Close()
			continue
		}
		go carry(client, server)
		go carry(server, client)
	}
}
