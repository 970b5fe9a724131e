package testmongo

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// TestDiesWithParent runs this test program again, as a parent that is killed.
func TestDiesWithParent(t *testing.T) {
	const inner = "TESTMONGO_PARENT"
	if dir := os.Getenv(inner); dir != "" {
		s := must.Get(New(dir))(t)
		fmt.Println(s.URL("tests"))
		select {} // until killed
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiesWithParent$")
	parent.Env = append(os.Environ(), inner+"="+t.TempDir())
	out := must.Get(parent.StdoutPipe())(t)
	must.Do(t, parent.Start())
	var text string
	must.Get(fmt.Fscanln(out, &text))(t)
	server := must.Get(url.Parse(text))(t)
	if err := dial(t, server.Host); err != nil {
		t.Fatalf("the server does not listen: %v", err)
	}
	must.Do(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed
	for began := time.Now(); dial(t, server.Host) == nil; {
		if time.Since(began) > 5*time.Minute {
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
