package main

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// What a relay carries comes complete and in order, both ways at once, and not before its
// time; and when one end has closed, the other hears of it.
func TestARelayCarriesEverythingLate(t *testing.T) {
	const delay = 20 * time.Millisecond
	listen := func() net.Listener {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		return listener
	}
	server, front := listen(), listen()
	go func() { _ = forward(t.Context(), front, server.Addr().String(), delay) }()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	echo, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(echo, echo)
		_ = echo.Close()
	}()

	sent := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	start := time.Now()
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got[:1]); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*delay {
		t.Errorf("the first byte was back after %v, want %v or more", took, 2*delay)
	}
	if _, err := io.ReadFull(conn, got[1:]); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("it came back otherwise, error %v", err)
	}
	_ = echo.Close()
	if _, err := conn.Read(got); !errors.Is(err, io.EOF) {
		t.Errorf("error %v after the other end has closed, want EOF", err)
	}
}
