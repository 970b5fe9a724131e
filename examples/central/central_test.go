//go:build linux

// On Linux every address of 127.0.0.0/8 is the machine's own.

package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// patience is how long the test waits for what should come at once.
const patience = 5 * time.Minute

// The example by its command: rules in MongoDB decide, an edit of them is in force at once, and without stint the API
// goes on.
func TestRulesInMongo(t *testing.T) {
	bin := t.TempDir()
	build(t, ".", nil, bin+"/", "../../service/cmd/stint", ".")
	build(t, "../../service/internal/testmongo/server", []string{"GOWORK=off"}, filepath.Join(bin, "mongo"), ".")
	host, stint := start(t, bin)
	search := func(user, plan string) *http.Response {
		t.Helper()
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+":8084/search", nil))(t)
		request.SetBasicAuth(user, plan)
		response := must.Get(http.DefaultClient.Do(request))(t)
		_ = response.Body.Close()
		return response
	}
	for i, want := range []int{200, 200, 200, 429} {
		if response := search("ann", "free"); response.StatusCode != want || want == 429 && response.Header.Get("Retry-After") == "" {
			t.Errorf("search %d of ann: %s, %v", i+1, response.Status, response.Header)
		}
	}
	for range 4 { // the other plan has more
		if response := search("bob", "pro"); response.StatusCode != 200 {
			t.Errorf("bob: %s", response.Status)
		}
	}
	patch := exec.CommandContext(t.Context(), filepath.Join(bin, "stint"), "rules", "patch", "search-free", `{"enabled": false}`)
	patch.Env = append(os.Environ(), "STINT_ADMIN=http://"+host+":8079")
	if out, err := patch.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if response := search("ann", "free"); response.StatusCode != 200 {
		t.Errorf("ann, when the rule is disabled: %s", response.Status)
	}
	must.Do(t, syscall.Kill(stint, syscall.SIGKILL))
	if response := search("ann", "free"); response.StatusCode != 200 {
		t.Errorf("ann without stint: %s", response.Status)
	}
}

// build builds packages in a folder.
func build(t *testing.T, dir string, env []string, output string, packages ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", output}, packages...)...)
	command.Dir, command.Env = dir, append(os.Environ(), env...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// start runs the command until the test ends. Buckets refill in hours, so that they don't while the test runs.
func start(t *testing.T, bin string) (host string, stint int) {
	t.Helper()
	host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	folder := t.TempDir()
	rules := must.Get(os.ReadFile("rules.yaml"))(t)
	file := filepath.Join(folder, "rules.yaml")
	must.Do(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(rules), "/1m", "/1h")), 0o600))
	run := exec.CommandContext(context.Background(), "./run", file)
	run.Env = append(os.Environ(), "HOST="+host, "BIN="+bin)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := must.Get(run.StdoutPipe())(t)
	run.Stderr = run.Stdout
	must.Do(t, run.Start())
	late := time.AfterFunc(patience, func() { _ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL) })
	var log strings.Builder
	lines, drained := bufio.NewScanner(out), make(chan struct{})
	t.Cleanup(func() {
		late.Reset(patience)
		_ = run.Process.Signal(syscall.SIGTERM) // it may have ended
		<-drained
		if err := run.Wait(); err != nil {
			t.Errorf("the command ended with %v", err)
		}
		late.Stop()
	})
	for lines.Scan() {
		fmt.Fprintln(&log, lines.Text())
		if found := regexp.MustCompile(`^stint listens on \S+, process (\d+)$`).FindStringSubmatch(lines.Text()); found != nil {
			stint, _ = strconv.Atoi(found[1])
		}
		if strings.HasPrefix(lines.Text(), "try: ") {
			late.Stop()
			go func() {
				for lines.Scan() {
				}
				close(drained)
			}()
			return host, stint
		}
	}
	close(drained)
	t.Fatalf("the command ended:\n%s", log.String())
	return "", 0
}
