package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/proc"
)

// checkPath is the check that wrk repeats.
const checkPath = "/api/v1/rate-limit/check?key=user:42&algorithm=TOKEN_BUCKET"

// measureService compares the service on memory with a handler that repeats its bytes,
// once with every request admitted and once with every request denied.
func measureService(ctx context.Context, args []string) error {
	var o options
	flags := newFlags(&o, "service", 5*time.Second, 64)
	cli.Number(flags, &o.threads, "threads", 2, 1, 64, "threads of wrk")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	for _, path := range []struct {
		name   string
		bucket string // the default token bucket
		status int
	}{
		{"admitted", "{capacity: 1000000000, refill: 1000000000/1s}", 200},
		{"denied", "{capacity: 1, refill: 1/24h}", 429},
	} {
		if err := compareService(ctx, o, path.name, path.bucket, path.status); err != nil {
			return fmt.Errorf("%s: %w", path.name, err)
		}
	}
	return nil
}

func compareService(ctx context.Context, o options, path, bucket string, status int) (err error) {
	service, err := startStint(ctx, o, "memory://", "defaults:\n  token_bucket: "+bucket+"\n")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Stop()) }()
	if _, err := fetch(service.Addr, checkPath); err != nil { // spends the single permit
		return err
	}
	bare, err := startSelf(ctx, "-repeat", "http://"+service.Addr+checkPath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Stop()) }()
	own, err := fetch(service.Addr, checkPath)
	if err != nil {
		return err
	}
	repeated, err := fetch(bare.Addr, checkPath)
	if err != nil {
		return err
	}
	if own.StatusCode() != status {
		return fmt.Errorf("stint answered %d, want %d: %s", own.StatusCode(), status, own.Body())
	}
	if err := sameShape(own, repeated); err != nil {
		return fmt.Errorf("stint and bare do not write the same: %w", err)
	}
	_, err = race(
		ctx, o, []entrant{{"bare", bare}, {"stint", service}}, checkPath, "BenchmarkService/impl=%s/path="+path,
		status != 200,
	)
	return err
}

// startStint starts a process of "stint serve".
func startStint(ctx context.Context, o options, store, config string) (*proc.Process, error) {
	return proc.Start(
		ctx, map[string]string{"stint.yaml": config}, o.stint, "serve", "--store", store, "--config", "stint.yaml",
		"--listen", proc.Addr,
	)
}
