package testredis

import (
	"context"
	_ "embed" // the preloaded library's source
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// libfaketime does not get along with the jemalloc of Debian's redis-server, which
// asks for the time before the library is ready.
//
//go:embed testdata/clock.c
var clockC []byte

// Clock lets [Server.ShiftClock] shift the wall clock that the server sees. It needs
// the C compiler that the race detector needs too.
func Clock(t testing.TB) Option {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockC, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	compile := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O1", "-o", library, source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("testredis: the C compiler: %v\n%s", err, out)
	}
	return func(s *Server) {
		s.clock = filepath.Join(s.dir, "clock.shift")
		s.env = append(s.env, "LD_PRELOAD="+library, "CLOCK_SHIFT_FILE="+s.clock)
		if err := s.writeShift(0); err != nil {
			t.Error(err)
		}
	}
}

// ShiftClock makes the wall clock that the server sees differ from the machine's by d,
// from now on and over restarts. The server was started with [Clock].
func (s *Server) ShiftClock(t testing.TB, d time.Duration) {
	t.Helper()
	if s.clock == "" {
		t.Fatal("testredis: the server was started without Clock")
	}
	if err := s.writeShift(d); err != nil {
		t.Fatal(err)
	}
}

// writeShift writes in place, since the server has the file mapped.
func (s *Server) writeShift(d time.Duration) error {
	file, err := os.OpenFile(s.clock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("testredis: %w", err)
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), 0)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("testredis: %w", err)
	}
	return nil
}
