package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// child is one process. It says that it is ready by an empty report, and answers each
// part by what it was answered.
func child(ctx context.Context, addr string, in io.Reader, out io.Writer) error {
	store, err := rueidis.Open(rueidis.Connection{URL: "redis://" + addr}, redisstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Ping(ctx); err != nil {
		return err
	}
	parts, reports := gob.NewDecoder(in), gob.NewEncoder(out)
	r := &report{}
	for {
		if err := reports.Encode(r); err != nil {
			return err
		}
		var p part
		if err := parts.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if r, err = askAll(ctx, p, store); err != nil {
			return err
		}
	}
}

// askAll lets the callers ask for one permit of a random client, again and again.
func askAll(ctx context.Context, p part, store stint.Store) (*report, error) {
	policy, err := p.policy()
	if err != nil {
		return nil, err
	}
	limiter, err := stint.NewLimiter(stint.Config{Store: store, Policy: policy})
	if err != nil {
		return nil, err
	}
	l := newLedger(p.Keys)
	names := make([]string, p.Keys)
	for i := range names {
		names[i] = "client" + strconv.Itoa(i)
	}
	draws := make([]*rand.Rand, p.Callers)
	for i := range draws {
		draws[i] = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i)))
	}
	failed := make(chan error, 1)
	result, err := loadgen.Run(ctx, loadgen.Plan{
		Callers: p.Callers, Duration: p.Duration, Questions: p.Ops,
		Ask: func(ctx context.Context, caller, _ int) loadgen.Answer {
			key := draws[caller].IntN(p.Keys)
			d, err := limiter.Allow(ctx, names[key])
			if err != nil {
				select {
				case failed <- err:
				default:
				}
				return loadgen.Failed
			}
			l[key].enter(&d)
			if d.Allowed {
				return loadgen.Admitted
			}
			return loadgen.Denied
		},
	})
	if err != nil {
		return nil, err
	}
	if n := result.Answers[loadgen.Failed]; n > 0 {
		return nil, fmt.Errorf("%d decisions failed, so what they took is not known; one: %w", n, <-failed)
	}
	return l.report(result.Elapsed), nil
}
