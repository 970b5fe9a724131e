package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/cmd/stint/internal/config"
)

// A question is what check, peek and reset have in common: whom to ask, about what.
type query struct {
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
func askCommand(p process, use, short, long string) (*cobra.Command, *query) {
	command := &cobra.Command{
		Use:   use + " KEY",
		Short: short,
		Long: long + "\n\n" +
			"It asks a running service; or, with --store, a shared store directly, deciding by the\n" +
			"limits of --config as a service with the same file would.",
		Args: cobra.ExactArgs(1),
	}
	q := &query{command: command}
	flags := command.Flags()
	flags.String("server", defaultServer, "`URL` of the service [STINT_SERVER]")
	flags.StringVar(&q.token, "token", "", "bearer `TOKEN` for the service; other users may see a flag [STINT_TOKEN]")
	flags.StringVar(&q.algorithm, "algorithm", "", "`NAME` of the algorithm whose default limit to use, such as TOKEN_BUCKET")
	flags.StringVar(&q.policy, "policy", "", "`NAME` of the policy to use")
	flags.BoolVar(&q.json, "json", false, "print the answer as JSON")
	q.timeout = 5 * time.Second
	flags.Var((*timeoutFlag)(&q.timeout), "timeout", "longest `DURATION` to wait for the answer")
	q.loadStore = settingFlags(p, flags, func(s config.Setting) bool {
		switch s.Name {
		case "store.url", "store.timeout", "store.key_prefix", "store.log_encoding", "store.partitions":
			return true
		default:
			return false
		}
	})
	flags.Lookup("store").DefValue = "" // without it, a service is asked
	return command, q
}

func checkCommand(p process) *cobra.Command {
	command, q := askCommand(p, "check", "Check a key, taking permits; run a command if it is allowed",
		"Check whether a request of the key is allowed, and take its permits if so. It exits\nwith 0 when allowed and with 3 when denied.\n\n"+guardHelp)
	command.Use = "check KEY [-- COMMAND [ARGUMENT...]]"
	command.Args = func(command *cobra.Command, args []string) error {
		keys := len(args)
		if dash := command.ArgsLenAtDash(); dash >= 0 {
			if keys = dash; len(args) == dash {
				return errors.New("there is no command after --; allowed: a command with its arguments")
			}
		}
		if keys != 1 {
			return fmt.Errorf("there are %d keys; allowed: one, and a command only after --", keys)
		}
		return nil
	}
	command.Flags().Int64Var(&q.permits, "permits", 1, "`N`, the cost of the request")
	wait := command.Flags().String("wait", "", "wait until the check is allowed; --wait=`DURATION` for that long at most")
	command.Flags().Lookup("wait").NoOptDefVal = "forever"
	command.RunE = func(command *cobra.Command, args []string) error {
		most, err := waitOfFlag(*wait)
		if err != nil {
			return err
		}
		return q.check(p, args[0], command.Flags().Changed("wait"), most, args[1:])
	}
	return command
}

// waitOfFlag reads --wait; 0 is no bound.
func waitOfFlag(text string) (time.Duration, error) {
	if text == "" || text == "forever" {
		return 0, nil
	}
	most, err := time.ParseDuration(text)
	if err != nil || most <= 0 {
		return 0, misused("--wait is %q; allowed: nothing, or =DURATION above 0 such as --wait=90s", text)
	}
	return most, nil
}

// check checks the key, waits if it is asked to, and runs the command, if there is one.
func (q *query) check(p process, key string, wait bool, most time.Duration, words []string) error {
	s, err := q.connect(p)
	if err != nil {
		return err
	}
	defer s.close()
	var body []byte
	once := func() (answer api.CheckResponse, err error) {
		permits := url.Values{"permits": {strconv.FormatInt(q.permits, 10)}}
		body, err = q.send(s, http.MethodGet, api.PathCheck, key, permits, &answer)
		return answer, err
	}
	ctx := q.command.Context()
	answer, err := once()
	if err == nil && wait && !answer.Allowed {
		answer, err = await(ctx, most, answer, once)
	}
	switch {
	case ctx.Err() != nil && !answer.Allowed:
		return errStopped
	case err != nil:
		return err
	}
	switch {
	case len(words) == 0 || !answer.Allowed && q.json:
		if err := q.show(p.Out, body, checkRows(&answer)); err != nil {
			return err
		}
	case !answer.Allowed:
		return exit{exitDenied, "stint: " + deniedText(key, &answer)}
	}
	if !answer.Allowed || len(words) == 0 {
		return deniedExit(answer.Allowed)
	}
	if err := pause(ctx, time.Duration(answer.DelayMicros)*time.Microsecond); err != nil {
		return err
	}
	return runCommand(ctx, p, words)
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
	command, q := askCommand(p, "reset", "Clear the state of a key",
		"Clear the state of the key: under the algorithm or policy named, or with neither under all of\nthem.")
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

// A row is one line of an answer for people.
type row struct{ name, text string }

// show prints an answer: as it came, or for people.
func (q *query) show(out io.Writer, body []byte, rows []row) error {
	if q.json {
		return say(out, "%s\n", bytes.TrimSpace(body))
	}
	var block bytes.Buffer
	table := tabwriter.NewWriter(&block, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", r.name, r.text) // into memory
	}
	_ = table.Flush()
	return say(out, "%s", block.Bytes())
}

func checkRows(c *api.CheckResponse) []row {
	rows := []row{
		{"allowed", yesOrNo(c.Allowed)},
		{"limit", limitText(c.Limit, c.Policy, c.Algorithm)},
		{"remaining", fmt.Sprint(c.Remaining)},
		{"resets in", waitText(c.ResetAfterMicros)},
		{"retry after", waitText(c.RetryAfterMicros)},
	}
	if c.DelayMicros > 0 {
		rows = append(rows, row{"delay", waitText(c.DelayMicros)})
	}
	if c.Degraded {
		rows = append(rows, row{"degraded", "the store is unreachable; its failure policy answered"})
	}
	return rows
}

// peekRows shows what a check would be told, or of an older service, which does not say, what
// is left.
func peekRows(r *api.RemainingResponse) []row {
	if r.At == 0 {
		return []row{
			{"limit", limitText(r.Limit, r.Policy, r.Algorithm)},
			{"remaining", fmt.Sprint(r.Remaining)},
			{"resets in", waitText(r.ResetAfterSeconds * int64(time.Second/time.Microsecond))},
		}
	}
	return checkRows(&api.CheckResponse{
		Allowed: r.Allowed, Policy: r.Policy, Algorithm: r.Algorithm, Limit: r.Limit, Remaining: r.Remaining,
		ResetAfterMicros: r.ResetAfterMicros, RetryAfterMicros: r.RetryAfterMicros, DelayMicros: r.DelayMicros,
	})
}

func resetRows(r *api.ResetResponse) []row {
	of := "all algorithms and policies"
	switch {
	case r.Policy != "":
		of = "policy " + r.Policy
	case r.Algorithm != "":
		of = r.Algorithm
	}
	return []row{{"reset", r.Key}, {"under", of}}
}

func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func limitText(limit int64, policy, algorithm string) string {
	if policy != "" {
		return fmt.Sprintf("%d (%s of policy %s)", limit, algorithm, policy)
	}
	return fmt.Sprintf("%d (%s)", limit, algorithm)
}

// waitText shows a time in microseconds, of which -1 is never.
func waitText(micros int64) string {
	if micros < 0 {
		return "never"
	}
	return (time.Duration(micros) * time.Microsecond).String()
}
