// Command bare is the yardstick for the service: a net/http handler that decides
// nothing and writes, for every request, the bytes that the service wrote once.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/stint-go/stint/bench/internal/answer"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	like := flag.String("like", "", "URL whose answer to repeat")
	flag.Parse()
	if err := run(context.Background(), *listen, *like); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, like string) error {
	from, err := url.Parse(like)
	if err != nil {
		return err
	}
	model, err := answer.Fetch(ctx, from.Host, from.RequestURI())
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	slog.New(slog.NewTextHandler(os.Stderr, nil)).Info("listening", "service", "http", "addr", listener.Addr().String())
	// Nothing that costs time and is not asked for: no timeouts, no mux.
	return http.Serve(listener, repeat(model)) //nolint:gosec // the barest server is what is measured
}

// repeat writes the model's status, header and body. What net/http adds by itself
// is left to it.
func repeat(model answer.Answer) http.Handler {
	header := http.Header{}
	for _, f := range model.Fields {
		if f.Name != "Date" && f.Name != "Content-Length" {
			header[f.Name] = append(header[f.Name], f.Value)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for name, values := range header {
			h[name] = values
		}
		w.WriteHeader(model.Status)
		_, _ = w.Write(model.Body) // the client is gone; nobody to tell
	})
}
