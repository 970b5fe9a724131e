package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/document"
)

// maxAnswerBytes bounds what is read of an answer. The longest is a list of rules: 100,000 of 600
// bytes.
const maxAnswerBytes = 64 << 20

// An apiCommand is a command that calls a running service: its REST API, or its admin API.
type apiCommand struct {
	process
	// command is what the flags belong to.
	command *cobra.Command

	// flag names the service ("server" or "admin"); standard is the URL without it.
	flag, standard string
	// The token is that of --token, of the first line of --token-file, or of the variable
	// tokenVariable, in this order. A flag is seen by other users of the machine.
	tokenVariable string
	tokenFile     string
	apiFlags
}

// apiFlags are the flags of all commands that call a service.
type apiFlags struct {
	Token string
	// JSON prints answers as they came, for scripts; without it they are tables for people.
	JSON bool
	// Timeout bounds each call, from connecting to the end of the answer.
	Timeout time.Duration
}

// newAPICommand makes the command of a path, with the flags that name the service, the token and the form of the
// answer. The standard URL and timeout are their defaults.
func newAPICommand(
	p process, path, flag, standard, tokenVariable string, timeout time.Duration,
) (*cobra.Command, *apiCommand) {
	command := newCommand(path)
	a := &apiCommand{process: p, command: command, flag: flag, standard: standard, tokenVariable: tokenVariable}
	a.Timeout = timeout
	flags := command.Flags()
	flags.String(flag, standard, flagHelp(path, flag))
	addFlags(flags, path, &a.apiFlags)
	flags.Lookup("token").Usage += " [" + tokenVariable + "]"
	return command, a
}

// newServerCommand makes a command that calls a service's REST API.
func newServerCommand(p process, path string) (*cobra.Command, *apiCommand) {
	return newAPICommand(p, path, "server", "http://127.0.0.1:8080", "STINT_TOKEN", 5*time.Second)
}

// listenerOf says whose URL a flag takes. A client that takes one listener for the other is told
// so.
var listenerOf = map[string]string{
	"admin":  "the admin listener, as admin_listen has it (127.0.0.1:8079)",
	"server": "the REST API, as listen has it (127.0.0.1:8080)",
}

// A service is the one that a command calls.
type service struct {
	base     *url.URL
	flag     string // that names it
	token    string
	variable string // the environment variable that the token may be in
	client   *http.Client
	close    func()
}

// A call is one request, a GET unless it has another method.
type call struct {
	method, path string
	query        url.Values
	document     []byte            // sent as JSON; nil for no body
	header       map[string]string // fields that are not ""
}

// service is the one that the flag names, or the environment if the flag is not given. It has to be
// closed.
func (a *apiCommand) service() (*service, error) {
	flag, variable := a.command.Flags().Lookup(a.flag), "STINT_"+strings.ToUpper(a.flag)
	from, text := "--"+a.flag, flag.Value.String()
	if env := a.env(variable); env != "" && !flag.Changed {
		from, text = variable, env
	}
	base, err := url.Parse(text)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" {
		return nil, misused("%s is %q; allowed: a URL such as %s", from, document.RedactURL(text), a.standard)
	}
	token := cmp.Or(a.Token, a.env(a.tokenVariable))
	if a.tokenFile != "" {
		if a.Token != "" {
			return nil, misused("--token and --token-file are given; allowed: one of them")
		}
		text, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, err
		}
		first, _, _ := strings.Cut(string(text), "\n")
		token = strings.TrimSpace(first)
	}
	if strings.ContainsFunc(token, unicode.IsControl) {
		return nil, misused("the token has a control character, such as the end of a line; allowed: without, by --token, "+
			"--token-file or %s", a.tokenVariable)
	}
	// A redirect is no answer of stint, and is shown as such.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &service{base, a.flag, token, a.tokenVariable, client, client.CloseIdleConnections}, nil
}

// send sends a request. An error says how to go on; it does not show the query, which holds the
// key.
func (s *service) send(ctx context.Context, c call) (*http.Response, error) {
	target := s.base.JoinPath(c.path)
	target.RawQuery = c.query.Encode()
	request, err := http.NewRequestWithContext(ctx, c.method, target.String(), bytes.NewReader(c.document))
	if err != nil {
		return nil, err
	}
	for name, text := range c.header {
		if text != "" {
			request.Header.Set(name, text)
		}
	}
	if c.document != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		if known, ok := errors.AsType[*url.Error](err); ok { // its text repeats the URL, with the key
			err = known.Err
		}
		return nil, unreachable(fmt.Errorf("%s does not answer: %w. Start a service with `stint serve`, "+
			"or name another with --%s", s.base.Redacted(), err, s.flag))
	}
	return response, nil
}

// callOn sends a request to a service, decodes the answer, and returns it as it came, with its ETag. A denied check is
// an answer, one that is not the API's an error.
func (a *apiCommand) callOn(s *service, c call, answer any) (body []byte, tag string, err error) {
	ctx, cancel := context.WithTimeout(a.command.Context(), a.Timeout)
	defer cancel()
	response, err := s.send(ctx, c)
	if err != nil {
		return nil, "", err
	}
	body, err = s.read(response, answer)
	return body, response.Header.Get("ETag"), err
}

// do calls the service that the flags name.
func (a *apiCommand) do(c call, answer any) (body []byte, tag string, err error) {
	s, err := a.service()
	if err != nil {
		return nil, "", err
	}
	defer s.close()
	return a.callOn(s, c, answer)
}

// ask makes a call of the service that the flags name, and shows its answer: as it came if JSON is asked for, else as
// rows.
func ask[A any](a *apiCommand, c call, rows func(answer *A) [][]string) error {
	var answer A
	body, _, err := a.do(c, &answer)
	if err != nil {
		return err
	}
	return a.show(body, rows(&answer)...)
}

// queryOf has the parameters that are not "".
func queryOf(texts map[string]string) url.Values {
	query := url.Values{}
	for name, text := range texts {
		if text != "" {
			query.Set(name, text)
		}
	}
	return query
}

// read reads an answer and decodes it.
//
// Three kinds of answers are told apart: what was asked for (200, 201, 204 without a body, or the 429 and 401 of a
// denial), a problem document, whose text is shown, and anything else, which is no answer of stint.
func (s *service) read(response *http.Response, answer any) ([]byte, error) {
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return nil, unreachable(fmt.Errorf("the answer of %s broke off: %w", s.base.Redacted(), err))
	}
	if response.StatusCode == http.StatusPreconditionFailed {
		return nil, errors.New("somebody else edited the rules meanwhile; nothing was changed. Run the command again")
	}
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	var problem api.Problem
	if media == apipath.ProblemType && json.Unmarshal(body, &problem) == nil {
		if response.StatusCode == http.StatusServiceUnavailable {
			return nil, unreachable(&problem)
		}
		if response.StatusCode == http.StatusNotFound && strings.HasPrefix(problem.Detail, "path is ") {
			return nil, fmt.Errorf("%s is another listener: --%s takes the URL of %s", s.base.Redacted(), s.flag,
				listenerOf[s.flag])
		}
		if response.StatusCode == http.StatusUnauthorized {
			return nil, fmt.Errorf("%w. Give a token by --token-file, or in %s", &problem, s.variable)
		}
		return nil, &problem
	}
	// 401 is the denial of a rule with `missing_status: 401`.
	denied := response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusUnauthorized
	made := response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated
	if response.StatusCode == http.StatusNoContent && len(body) == 0 {
		return nil, nil
	}
	if media != "application/json" || !made && !denied ||
		json.Unmarshal(body, answer) != nil {
		return nil, fmt.Errorf("%s does not answer like stint: %s, %q", s.base.Redacted(), response.Status, media)
	}
	return body, nil
}

// show prints an answer as it came if JSON is asked for, else as rows.
func (a *apiCommand) show(body []byte, rows ...[]string) error {
	if a.JSON {
		return say(a.Out, "%s\n", bytes.TrimSpace(body))
	}
	return sayTable(a.Out, rows)
}

// oneLine keeps a cell of a table in its line and its column.
var oneLine = strings.NewReplacer("\n", "; ", "\t", " ", "\v", " ", "\f", " ")

// sayTable prints rows in columns.
func sayTable(out io.Writer, rows [][]string) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = oneLine.Replace(harmless(cell)) // tabwriter obeys \xff
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t")) // into memory
	}
	_ = table.Flush()
	return say(out, "%s", text.Bytes())
}

// counted is how many things there are, in words: "1 rule", "2 rules".
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
