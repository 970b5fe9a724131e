package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// process is a child.
type process struct {
	command *exec.Cmd
	in      io.Closer
	parts   *gob.Encoder
	reports *gob.Decoder
}

// start starts a child, which ends with the context.
func start(ctx context.Context, addr string) (*process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, path, childMode, addr)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{command, in, gob.NewEncoder(in), gob.NewDecoder(out)}, command.Start()
}

// read reads a report.
func (p *process) read() (*report, error) {
	var r report
	if err := p.reports.Decode(&r); err != nil {
		return nil, fmt.Errorf("a process: %w", errors.Join(err, p.command.Wait()))
	}
	return &r, nil
}

// startAll starts the children and waits until all are ready.
func startAll(ctx context.Context, n int, addr string) ([]*process, error) {
	children := make([]*process, n)
	for i := range children {
		p, err := start(ctx, addr)
		if err != nil {
			return nil, err
		}
		children[i] = p
	}
	for _, p := range children {
		if _, err := p.read(); err != nil {
			return nil, err
		}
	}
	return children, nil
}

// stopAll ends the children when they have nothing to do.
func stopAll(children []*process) (err error) {
	for _, p := range children {
		err = errors.Join(err, p.in.Close())
	}
	for _, p := range children {
		err = errors.Join(err, p.command.Wait())
	}
	return err
}

// hammer lets the children do a part at once, and checks what they were answered.
func hammer(children []*process, p part) (*total, error) {
	policy, err := p.policy()
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		if err := child.parts.Encode(p); err != nil {
			return nil, err
		}
	}
	reports, errs := make([]*report, len(children)), make([]error, len(children))
	var group sync.WaitGroup
	for i, child := range children {
		group.Go(func() { reports[i], errs[i] = child.read() })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return check(p.Keys, policy, reports), nil
}
