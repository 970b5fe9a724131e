package deploy_test

import (
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
)

const failurePage = "../docs/failure.md"

// TestDrill: the commands of the drill, one after the other, print what the page shows, if not at once, then soon.
func TestDrill(t *testing.T) {
	t.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	_, drill, _ := strings.Cut(read(t, failurePage), "## The drill\n")
	drill, _, _ = strings.Cut(drill, "Do it once more")
	var ports []string
	for range 2 {
		_, port := must.Two(net.SplitHostPort(testport.Address(t)))(t)
		ports = append(ports, port)
	}
	drill = replaced(t, drill, "6399", ports[0], "8090", ports[1])
	steps := regexp.MustCompile("(?s)```(sh|console)\n(.*?)```").FindAllStringSubmatch(drill, -1)
	if len(steps) != 7 {
		t.Fatalf("the drill has %d steps", len(steps))
	}
	redis := steps[0][2]
	start(t, nil, "bash", "-c", "exec "+redis)
	start(t, []string{`(service=http) addr=`}, "bash", "-c", "exec "+steps[1][2])
	for i, step := range steps[2:] {
		if i == 4 {
			start(t, nil, "bash", "-c", "exec "+redis)
		}
		if step[1] == "sh" {
			shell(t, t.TempDir(), step[2])
			continue
		}
		first, want, _ := strings.Cut(step[2], "\n")
		shows(t, strings.TrimPrefix(first, "$ "), want)
	}
}

// shows waits until a command prints what is wanted.
func shows(t *testing.T, command, want string) {
	t.Helper()
	var got string
	var err error
	if !soon(func() bool {
		got, err = try(t, ".", command)
		return got == want
	}) {
		t.Fatalf("%s prints\n%s%v\nthe page shows\n%s", command, got, err, want)
	}
}

// TestModes: what `stint check` says while there is no Redis, by mode, and its exit codes, are those of the page.
func TestModes(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `(open|closed|local)` \\| (.*) \\| (\\d).* \\|$").FindAllStringSubmatch(read(t, failurePage), -1)
	if len(rows) != 3 {
		t.Fatalf("the page has %d modes", len(rows))
	}
	nowhere := testport.Address(t)
	for _, row := range rows {
		service, _ := startService(t, "redis://"+nowhere, "--on-store-failure="+row[1], "--store-timeout=100ms")
		got, _ := try(t, ".", "set +e; "+programs+"/stint check ann --server http://"+service+" 2>&1; echo exit $?")
		got = regexp.MustCompile(" +").ReplaceAllString(got, " ")
		for _, said := range append(regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[2], -1), []string{"", "exit " + row[3]}) {
			if !strings.Contains(got, said[1]) {
				t.Errorf("%s: there is no %q in\n%s", row[1], said[1], got)
			}
		}
	}
}
