// Command server is a server of MongoDB's protocol for tests: FerretDB 1 over SQLite.
//
//	server DIR
//
// It keeps its data in DIR, which exists, prints its URL on a line of its own when it listens,
// and ends when its input does, so that it does not outlive the process that started it. It is a
// module of its own so that users of stint do not download FerretDB.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments; allowed: the folder for its data", len(args))
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	server, err := ferretdb.New(&ferretdb.Config{
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Listener: ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Handler:  "sqlite",
		// Nothing has to outlive the machine.
		SQLiteURL: "file:" + dir + "/?_pragma=synchronous(off)",
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	go fmt.Println(server.MongoDBURI()) // it waits for Run to listen
	return server.Run(ctx)
}
