package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// The page's limit for cron jobs: a job that has failed has used its turn until it is reset, a denial can be let pass, and
// scripts with another key or --name have a turn of their own.
func TestCronJobs(t *testing.T) {
	program := must.Get(stintProgram())(t)
	const page = "docs/reference/commands.md"
	command, _, found := strings.Cut(blocks(t, page, "sh")[0], " -- ")
	pass := groups("append `([^`]+)`", pages(t)[page])
	if !found || pass == nil {
		t.Fatal("the page has no command, or does not say how a denial passes")
	}
	command = strings.ReplaceAll(command, "redis:6379", server.Addr())
	command = strings.ReplaceAll(command, "--store-timeout 1s", "--store-timeout 10s") // the machine may be busy
	reset := strings.Replace(command, "stint check", "stint reset", 1)
	for _, run := range []struct {
		command string
		code    int
	}{
		{reset, 0},
		{command + " -- false", 1},
		{command + " -- true", 122},
		{command + " -- true " + pass[0], 0},
		{command + " --name other -- true", 0},
		{strings.Replace(command, "nightly", "weekly", 1) + " -- true", 0},
		{reset, 0},
		{command + " -- true", 0},
	} {
		shell := exec.CommandContext(t.Context(), "bash", "-c", run.command)
		shell.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
		out, _ := shell.CombinedOutput()
		if code := shell.ProcessState.ExitCode(); code != run.code {
			t.Errorf("%s: exit code %d, want %d\n%s", run.command, code, run.code, out)
		}
	}
}
