package resp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/resp"
)

// command is a command as clients send it.
func command(args ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	return text
}

// full is the beginning of a command that is as long as a command may be, and is not whole.
func full() string {
	head := "*3\r\n$16370\r\n"
	return head + strings.Repeat("a", resp.MaxCommandBytes-len(head)-2) + "\r\n"
}

// FuzzParse holds the parser against what it promises: it reads nothing beyond the text, and nothing of what follows a command
// changes it; a command that has not come whole is none yet, wherever it is cut; what is wrong stays wrong, whatever comes;
// and no text that is as long as the memory for it waits for more, since more can't come.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "\r\n", "PING\r\n", "PING a  b\n", "*0\r\n", "*-1\r\n", "*-\r\n", "*1\r\n$4\r\nPING\r\n", command("CL.THROTTLE", "k", "15", "30", "60", "1"),
		command("PING") + command("ECHO", "a\r\nb\x00"), "*1\r\n$0\r\n\r\n", "*1\r\n$-1\r\n", "*1\r\n$536870912\r\n", "*999999999999999999\r\n", "*9999999999999999999\r\n",
		"*1\r\n$1\r\naa\r\n", "*1\n$1\na\n", "*1\r\r", "*2\r\n*1\r\n$1\r\na\r\n", "%1\r\n$1\r\na\r\n:1\r\n", "$4\r\nPING\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", strings.Repeat("a", 1024), strings.Repeat("*0\r\n", 100), command(strings.Split(strings.Repeat("a ", 1024), " ")...),
		command("ECHO", strings.Repeat("a", 16300)), command("ECHO", strings.Repeat("a", 16400)), full(),
	} {
		f.Add([]byte(seed), 5)
	}
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		text = text[:min(len(text), resp.MaxCommandBytes)] // the connection's memory
		args, length, err := resp.Parse(slices.Clip(text), nil)
		switch {
		case length < 0 || length > len(text):
			t.Fatalf("%d of %d bytes are a command", length, len(text))
		case err != nil && length != 0:
			t.Fatalf("%v, and a command of %d bytes", err, length)
		case err == nil && length == 0 && len(text) == resp.MaxCommandBytes:
			t.Fatalf("%q... waits for more than there is memory for", text[:64])
		}
		if longer := append(slices.Clone(text), "\r\n*1\r\n$1\r\na\r\n"...); err != nil || length > 0 {
			again, n, other := resp.Parse(longer, nil)
			if n != length || (other == nil) != (err == nil) || err == nil && !slices.EqualFunc(args, again, bytes.Equal) {
				t.Fatalf("%q %d %v; followed by more it is %q %d %v", args, length, err, again, n, other)
			}
		}
		if length == 0 {
			return
		}
		size := 0
		for _, arg := range args {
			size += len(arg)
		}
		if size > length {
			t.Fatalf("%d bytes of arguments in a command of %d", size, length)
		}
		step := max(1, length/64)
		for at := 0; at <= length; at += step {
			part := text[:min(max(at, 0), length-1)]
			if at == 0 { // the fuzzer's
				part = text[:(cut%length+length)%length]
			}
			if some, n, err := resp.Parse(slices.Clip(part), args); n != 0 || err != nil {
				t.Fatalf("%q is %q %d %v, a part of a command", part, some, n, err)
			}
		}
		args, _, _ = resp.Parse(text[:length], args)
		if len(args) == 0 || text[0] != '*' {
			return
		}
		words := make([]string, len(args))
		for i, arg := range args {
			words[i] = string(arg)
		}
		again, n, err := resp.Parse([]byte(command(words...)), nil)
		if sent := len(command(words...)); n != sent || err != nil || !slices.EqualFunc(args, again, bytes.Equal) {
			t.Fatalf("%q is %q, %d of %d bytes, %v", words, again, n, sent, err)
		}
	})
}

// FuzzConn sends bytes to a connection, in parts of a length. Nothing panics, and each whole command has one reply, up to
// one that ends the connection; then the connection ends.
func FuzzConn(f *testing.F) {
	for _, seed := range []string{
		command("HELLO", "3") + command("CL.THROTTLE", "k", "15", "30", "60") + command("TTL", "k") + command("DEL", "k", "l"),
		command("HELLO", "3", "AUTH", "u", "secret", "SETNAME", "n") + command("CLIENT", "GETNAME") + command("RESET") + command("PING"),
		command("AUTH", "secret") + "MULTI\n" + command("CL.THROTTLE", "k", "1", "1", "1", "0") + command("STINT.CHECK", "p", "k", "2") + command("EXEC") + "QUIT\n" + "PING\n",
		"MULTI\nMULTI\nDISCARD\nDISCARD\nEXEC\nMULTI\nNO\nMULTI\n",
		command("MULTI") + command("AUTH", "no") + command("HELLO", "2") + command("GET", "a") + command("EXEC") + command("QUIT"),
		command("STINT.RESERVE", "i", "p", "k", "3", "1m") + command("STINT.COMMIT", "i", "1") + command("STINT.COMMIT", "i", "1", "p", "k", "1") + command("STINT.CANCEL", "j"),
		command("STINT.EVALUATE", "GET", "/", "ip", "::1") + command("STINT.EVALUATE", "GET", "/", "ip") + command("STINT.CHECK", "no", "k"),
		command("CL.THROTTLE", "", "999999999", "1000000000", "31536000", "1000000000") + command("CL.THROTTLE", "\x00", "-1", "0", "99999999999", "x"),
		"COMMAND\nCOMMAND COUNT\nCOMMAND DOCS\nCOMMAND LIST\nCOMMAND INFO ping no\nCONFIG GET *\nINFO\nCLUSTER SLOTS\nSELECT 1\nECHO a\nEXISTS k\nPTTL k\n",
		command("SCRIPT", "LOAD", oneLine) + command("EVALSHA", digest(oneLine), "1", "k", "1", "2", "3", "4") + command("EVAL", oneLine, "2", "k") + "SELECT 15\nTTL k\nSCRIPT FLUSH\n",
		command("MULTI") + command("EVAL", oneLine+"[1];", "1", "k", "1", "2", "3", "4") + command("EVALSHA", "a", "0") + command("SCRIPT", "EXISTS", "a", "b") + "EXEC\n",
		"*0\r\n*-1\r\n\r\n \n*1\r\n$0\r\n\r\n*2\r\n$4\r\nPING\r\n:1\r\n", "POST / HTTP/1.1\r\n\r\n" + command("DEL", "k"),
	} {
		for _, part := range []uint{0, 1, 7, 1 << 10} {
			f.Add([]byte(seed), part, part%2 == 1)
		}
	}
	f.Add([]byte(full()+"a"), uint(1<<10), false)
	f.Add([]byte("*1\r\n$1\r\n0\r\n*6\r\n$99999\r\n"), uint(153), false)
	f.Fuzz(func(t *testing.T, text []byte, part uint, tokens bool) {
		text = text[:min(len(text), resp.MaxCommandBytes-1)] // no command is too long, for whoever sends it
		var log bytes.Buffer
		server := resp.New(fakeConfig(t, &log, tokens, part%3 == 0))
		near, far := net.Pipe()
		listener := &pipe{conn: make(chan net.Conn, 1)}
		listener.conn <- far
		close(listener.conn)
		if err := server.Serve(listener); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
		replies := make(chan int)
		go func() { replies <- countReplies(t, near) }()
		size := int(part%(2<<10)) + 1
		if part == 0 {
			size = max(len(text), 1)
		}
		must.Do(t, near.SetWriteDeadline(time.Now().Add(patience)))
		for piece := range slices.Chunk(text, size) {
			if _, err := near.Write(piece); errors.Is(err, io.ErrClosedPipe) {
				break // by the server
			} else if err != nil {
				t.Fatalf("%v: the connection reads no more, and does not end", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		must.Do(t, server.Shutdown(ctx))
		got := <-replies
		if log.Len() > 0 {
			t.Fatal(log.String())
		}
		want, last := 0, ""
		var args [][]byte
		for at, n := 0, 0; at < len(text); at += n {
			var err error
			if args, n, err = resp.Parse(text[at:], args); err != nil {
				// One that says that it is longer is one command only for those who may send no longer ones.
				if got > want || !strings.Contains(err.Error(), "for the whole command") {
					want++
				}
				break
			} else if n == 0 {
				break
			}
			if len(args) > 0 {
				if want++; want == got {
					last = string(text[at : at+n])
				}
			}
		}
		ends := !strings.HasPrefix(last, "*") || strings.Contains(strings.ToUpper(last), "QUIT")
		if got != want && (got > want || !ends) {
			t.Fatalf("%d replies to %d commands; the last is to %q", got, want, last)
		}
	})
}

const patience = 5 * time.Minute

// A pipe is a listener of one connection.
type pipe struct{ conn chan net.Conn }

// Accept implements [net.Listener].
func (p *pipe) Accept() (net.Conn, error) {
	if conn, ok := <-p.conn; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements [net.Listener].
func (*pipe) Close() error { return nil }

// Addr implements [net.Listener].
func (*pipe) Addr() net.Addr { return &net.TCPAddr{} }

// countReplies reads replies until the connection ends, which is behind a whole one.
func countReplies(t *testing.T, from io.Reader) (n int) {
	in := bufio.NewReader(from)
	for ; ; n++ {
		if _, err := in.Peek(1); err != nil {
			return n
		}
		if err := readReply(in, 0); err != nil {
			t.Errorf("reply %d: %v", n, err)
			_, _ = io.Copy(io.Discard, in) // so that the server does not wait
			return n
		}
	}
}

// readReply reads a reply in RESP 2 or 3.
func readReply(in *bufio.Reader, depth int) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	text, whole := strings.CutSuffix(line[1:], "\r\n")
	if !whole || strings.ContainsAny(text, "\r\n") || depth > 4 {
		return fmt.Errorf("the line %q", line)
	}
	switch line[0] {
	case '+', '-', '_':
		return nil
	case '#':
		if text != "t" && text != "f" {
			return fmt.Errorf("the boolean %q", text)
		}
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch line[0] {
	case ':':
		return err
	case '$':
		if n == -1 || err != nil {
			return err
		}
		bulk := make([]byte, n+2)
		if _, err = io.ReadFull(in, bulk); err == nil && string(bulk[n:]) != "\r\n" {
			err = fmt.Errorf("a string of %d bytes that ends in %q", n, bulk[n:])
		}
		return err
	case '%':
		n *= 2
	case '*':
	default:
		return fmt.Errorf("the type of %q", line)
	}
	for ; n > 0 && err == nil; n-- {
		err = readReply(in, depth+1)
	}
	return err
}

// fakeConfig is a service with the policy p.
func fakeConfig(t *testing.T, log io.Writer, tokens, bound bool) resp.Config {
	policy := must.Get(stint.NewPolicy("p", stint.TokenBucket(10, stint.PerSecond(1))))(t)
	store := memstore.New(memstore.Config{Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	errToken := errors.New("no token")
	may := func(token string) error {
		if tokens && token != "secret" {
			return errToken
		}
		return nil
	}
	c := resp.Config{
		DecideAll: store.DecideAll,
		Evaluate: func(_ context.Context, q *resp.Question) (r api.EvaluateResponse, err error) {
			if q.Path == "" || q.Path[0] != '/' {
				return r, stint.Invalid("path", q.Path, "/ first")
			}
			r.Allowed, r.Matched = true, []string{q.Method}
			return r, nil
		},
		Enter: func(ctx context.Context, _ string, cost int64) (context.Context, func(), error) {
			if cost < 1 {
				t.Errorf("work of %d operations", cost)
			}
			return ctx, func() {}, nil
		},
		Undecided: func(stint.Algorithm, error) {},
		Observe:   func(context.Context, *stint.Event) {},
		Target: func(policyName string) (*resp.Target, error) {
			if policyName != "p" {
				return nil, stint.Invalid("policy", policyName, "p")
			}
			return &resp.Target{
				Policy: policy, Rule: "p", Most: 10,
				Fill: func(c *api.CheckResponse, claim *stint.Claim, d *stint.Decision) {
					c.Key, c.Allowed, c.Limit, c.Remaining = claim.Key, d.Allowed, d.Limit, d.Remaining
				},
			}, nil
		},
		CheckKey: func(key string) error {
			if key == "" || len(key) > bounds.MaxKeyBytes {
				return stint.Invalid("key", key, "1 to so many bytes")
			}
			return nil
		},
		MayAsk: may, MayName: may,
		Tokens: tokens,
		Refused: func(_ string, err error) (int, string) {
			if errors.Is(err, errToken) {
				return http.StatusUnauthorized, err.Error()
			}
			return http.StatusBadRequest, err.Error()
		},
		State:    func(net.Conn, http.ConnState) {},
		Draining: func() bool { return false },
		Memory:   func() uint64 { return 1 },
		Version:  "v0",
		Logger:   slog.New(slog.NewTextHandler(log, nil)),
	}
	if bound {
		c.Take = store.Take
	}
	return c
}
