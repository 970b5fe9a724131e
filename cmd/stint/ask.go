package main

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/cmd/stint/internal/config"
)

// A question is what check, peek and reset have in common: whom to ask, about what.
type question struct {
	token             string
	algorithm, policy string
	permits           int64 // of a check, or of what a peek asks about
	json              bool
	timeout           time.Duration
	loadStore         func() (config.Config, error)
	command           *cobra.Command
}

const defaultServer = "http://127.0.0.1:8080"

// askCommand makes a command that asks about one key.
func askCommand(p process, use, short, long string) (*cobra.Command, *question) {
	command := &cobra.Command{
		Use:   use + " KEY",
		Short: short,
		Long: long + "\n\n" +
			"It asks a running service; or, with --store, a shared store directly, deciding by the\n" +
			"limits of --config as a service with the same file would.",
		Args: cobra.ExactArgs(1),
	}
	q := &question{command: command}
	flags := command.Flags()
	flags.String("server", defaultServer, "`URL` of the service [STINT_SERVER]")
	flags.StringVar(&q.token, "token", "", "bearer `TOKEN` for the service; other users may see a flag [STINT_TOKEN]")
	flags.StringVar(&q.algorithm, "algorithm", "", "`NAME` of the algorithm whose default limit to use, such as TOKEN_BUCKET")
	flags.StringVar(&q.policy, "policy", "", "`NAME` of the policy to use")
	flags.BoolVar(&q.json, "json", false, "print the answer as JSON")
	flags.DurationVar(&q.timeout, "timeout", 5*time.Second, "longest `DURATION` to wait for the answer")
	q.loadStore = settingFlags(p, flags, func(s config.Setting) bool {
		switch s.Name {
		case "store.url", "store.timeout", "store.key_prefix", "store.log_encoding", "store.partitions":
			return true
		default:
			return false
		}
	})
	return command, q
}

func checkCommand(p process) *cobra.Command {
	command, q := askCommand(p, "check", "Check a key, taking permits",
		"Check whether a request of the key is allowed, and take its permits if so. It exits\nwith 0 when allowed and with 3 when denied.")
	command.Flags().Int64Var(&q.permits, "permits", 1, "`N`, the cost of the request")
	command.RunE = func(_ *cobra.Command, args []string) error {
		var answer api.CheckResponse
		permits := url.Values{"permits": {strconv.FormatInt(q.permits, 10)}}
		body, err := q.ask(p, http.MethodGet, api.PathCheck, args[0], permits, &answer)
		if err != nil {
			return err
		}
		if err := q.show(p.Out, body, checkRows(&answer)); err != nil {
			return err
		}
		if !answer.Allowed {
			return exit{code: exitDenied}
		}
		return nil
	}
	return command
}

func peekCommand(p process) *cobra.Command {
	command, q := askCommand(p, "peek", "Say what a key has left, taking nothing",
		"Say how many permits the key has left, and whether a request would be allowed, or when.\nNothing is taken. It exits with 0 in either case.")
	command.Flags().Int64Var(&q.permits, "permits", 1, "`N`, the cost of the request")
	command.RunE = func(_ *cobra.Command, args []string) error {
		var answer api.RemainingResponse
		var permits url.Values
		if command.Flags().Changed("permits") { // which an older service refuses
			permits = url.Values{"permits": {strconv.FormatInt(q.permits, 10)}}
		}
		body, err := q.ask(p, http.MethodGet, api.PathRemaining, args[0], permits, &answer)
		if err != nil {
			return err
		}
		return q.show(p.Out, body, peekRows(&answer))
	}
	return command
}

func resetCommand(p process) *cobra.Command {
	command, q := askCommand(p, "reset", "Make a key as new",
		"Make the key as new: under the algorithm or policy named, or with neither under all of\nthem.")
	command.RunE = func(_ *cobra.Command, args []string) error {
		var answer api.ResetResponse
		body, err := q.ask(p, http.MethodDelete, api.PathReset, args[0], nil, &answer)
		if err != nil {
			return err
		}
		return q.show(p.Out, body, resetRows(&answer))
	}
	return command
}
