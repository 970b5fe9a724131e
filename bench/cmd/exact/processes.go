package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// hammer lets so many children do a part at once, and checks what they were answered.
// A child says that it is connected by an empty report, and answers its part by another.
func hammer(ctx context.Context, processes int, addr string, p part) (*total, error) {
	policy, err := p.policy()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the children that are left when one has failed
	reports, errs := make([]report, processes), make([]error, processes)
	begin := make(chan struct{})
	var connected, ended sync.WaitGroup
	connected.Add(processes)
	for i := range processes {
		ended.Go(func() {
			command := exec.CommandContext(ctx, self, childMode, addr)
			command.Stderr = os.Stderr
			in, err1 := command.StdinPipe()
			out, err2 := command.StdoutPipe()
			err := errors.Join(err1, err2)
			if err == nil {
				err = command.Start()
			}
			answers := gob.NewDecoder(out)
			if err == nil {
				err = answers.Decode(&report{})
			}
			connected.Done()
			<-begin
			if err == nil {
				err = gob.NewEncoder(in).Encode(p)
			}
			if err == nil {
				err = answers.Decode(&reports[i])
			}
			if command.Process != nil {
				err = errors.Join(err, command.Wait())
			}
			errs[i] = err
		})
	}
	connected.Wait()
	close(begin)
	ended.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return check(p.Keys, policy, reports), nil
}

// child is one process.
func child(ctx context.Context, addr string, in io.Reader, out io.Writer) error {
	store, err := rueidis.OpenBare(rueidis.Connection{URL: "redis://" + addr}, redisstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Ping(ctx); err != nil {
		return err
	}
	answers := gob.NewEncoder(out)
	if err := answers.Encode(&report{}); err != nil {
		return err
	}
	var p part
	if err := gob.NewDecoder(in).Decode(&p); err != nil {
		return err
	}
	r, err := askAll(ctx, p, store)
	if err != nil {
		return err
	}
	return answers.Encode(r)
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
	r := newReport(p.Keys)
	draws := make([]*rand.Rand, p.Callers)
	for i := range draws {
		draws[i] = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i)))
	}
	failed := make(chan error, 1)
	result, err := loadgen.Run(ctx, loadgen.Plan{
		Callers: p.Callers, Duration: p.Duration, Questions: p.Ops,
		Ask: func(ctx context.Context, caller, _ int) loadgen.Answer {
			client := draws[caller].IntN(p.Keys)
			d, err := limiter.Allow(ctx, "client"+strconv.Itoa(client))
			if err != nil {
				select {
				case failed <- err:
				default:
				}
				return loadgen.Failed
			}
			r.Clients[client].enter(&d)
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
	r.Elapsed = result.Elapsed
	return r, nil
}
