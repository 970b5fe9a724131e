package testmongo

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestDiesWithParent runs this test program again, as a parent that is killed.
func TestDiesWithParent(t *testing.T) {
	const inner = "TESTMONGO_PARENT"
	if dir := os.Getenv(inner); dir != "" {
		s, err := New(dir)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(s.URL("tests"))
		select {} // until killed
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiesWithParent$")
	parent.Env = append(os.Environ(), inner+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var text string
	if _, err := fmt.Fscanln(out, &text); err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(t, server.Host); err != nil {
		t.Fatalf("the server does not listen: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	for began := time.Now(); dial(t, server.Host) == nil; {
		if time.Since(began) > time.Minute {
			t.Fatal("the server outlives its parent")
		}
	}
}

func dial(t *testing.T, address string) error {
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}
