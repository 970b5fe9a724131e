package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// programs are the two that are compared: the path of each and its arguments.
var programs struct {
	reference, subject []string
	same               bool // the reference stands on both sides
}

// TestMain builds both programs. What go has built it keeps, so that this takes its time only once.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "envoy")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	other := os.Getenv("STINT_ENVOY_SUBJECT")
	programs.same = other == "reference"
	reference, stint := filepath.Join(dir, "reference"), filepath.Join(dir, "stint")
	programs.reference, programs.subject = []string{reference}, []string{stint, "ratelimit"}
	err = build("reference", ".", reference, "GOWORK=off") // the module is not in the workspace
	switch {
	case programs.same:
		programs.subject = programs.reference
	case other != "":
		programs.subject = []string{other}
	default:
		err = errors.Join(err, build(".", "../../service/cmd/stint", stint))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build builds a package, with more in the environment than this process has.
func build(folder, target, program string, environment ...string) error {
	command := exec.CommandContext(context.Background(), "go", "build", "-tags", "grpcnotrace", "-o", program, target)
	command.Dir = folder
	command.Env = append(os.Environ(), environment...)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", target, err, text)
	}
	return nil
}

// number is an environment variable's, or otherwise if it is not set.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text, set := os.LookupEnv(variable)
	if !set {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return value
}
