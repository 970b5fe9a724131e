package resp_test

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// openRueidis opens a client with its default options, which are RESP 3 and the cache that CLIENT TRACKING feeds.
func openRueidis(t *testing.T, s *service, change ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	options := rueidis.ClientOption{InitAddress: []string{s.addr}}
	for _, do := range change {
		do(&options)
	}
	client := must.Get(rueidis.NewClient(options))(t)
	t.Cleanup(client.Close)
	return client
}

// versions are the options of a client for each version of the protocol.
var versions = map[string]func(*rueidis.ClientOption){
	"RESP 2": func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
	"RESP 3": func(*rueidis.ClientOption) {},
}

func askRueidis(t *testing.T, client rueidis.Client, key string) (any, error) {
	t.Helper()
	answer, err := client.Do(t.Context(), client.B().Arbitrary("CL.THROTTLE").Keys(key).Args("15", "30", "3600").Build()).ToAny()
	return answer, err
}

func TestRueidis(t *testing.T) {
	s := startService(t, memory, limits)
	for name, change := range versions {
		t.Run(name, func(t *testing.T) {
			client := openRueidis(t, s, change)
			ctx, key := t.Context(), strings.ReplaceAll(name, " ", "")
			answer, err := askRueidis(t, client, key)
			expectThrottle(t, "one", answer, err, 0, 16, 15, -1, 120)

			// At once, and as a transaction.
			for _, frame := range []string{"", "MULTI"} {
				commands := rueidis.Commands{
					client.B().Arbitrary("CL.THROTTLE").Keys(key+frame+"!").Args("2", "1", "3600", "3").Build(),
					client.B().Ttl().Key(key + frame + "!").Build(), client.B().Pttl().Key(key + frame + "!").Build(),
					client.B().Exists().Key(key + frame + "!").Build(), client.B().Unlink().Key(key + frame + "!").Build(),
				}
				if frame != "" {
					commands = slices.Concat(rueidis.Commands{client.B().Multi().Build()}, commands, rueidis.Commands{client.B().Exec().Build()})
				}
				var answers []any
				for _, r := range client.DoMulti(ctx, commands...) {
					answers = append(answers, must.Get(r.ToAny())(t))
				}
				if frame != "" {
					answers, _ = answers[len(answers)-1].([]any)
				}
				if len(answers) != 5 {
					t.Fatal(answers)
				}
				expectThrottle(t, "the first of many "+frame, answers[0], nil, 0, 3, 0, -1, 10800)
				if !matches("~10800", fmt.Sprint(answers[1])) || answers[3] != int64(1) || answers[4] != int64(1) {
					t.Errorf("%q: %v", frame, answers)
				}
			}
			got := hammer(t, 50, func(int) (bool, error) {
				return admitted(client.Do(ctx, client.B().Arbitrary("CL.THROTTLE").Keys(key+"all").Args("999", "1", "86400").Build()).ToAny())
			})
			if got != 1000 {
				t.Errorf("%d of 3200 were admitted; the limit is 1000", got)
			}
			dedicated, release := client.Dedicate()
			answer, err = dedicated.Do(ctx, dedicated.B().Arbitrary("STINT.CHECK").Args("two", key).Build()).ToAny()
			release()
			if said := pairs(answer); err != nil || said["limit"] != int64(3) || said["source"] != "store" || !said.allowed() {
				t.Errorf("STINT.CHECK: %v, %v", answer, err)
			}
			expectError(t, "GET", client.Do(ctx, client.B().Get().Key(key).Build()).Error(), ".*unknown command.*")
		})
	}
}

func TestRueidisByTokenAndTLS(t *testing.T) {
	configuration, encrypted := secure(t, testredis.NewAuthority(t))
	s := startService(t, memory, configuration+tokens(t))
	for name, change := range versions {
		t.Run(name, func(t *testing.T) {
			client := openRueidis(t, s, change, func(o *rueidis.ClientOption) {
				o.TLSConfig, o.Password, o.ClientName = encrypted, token, "app"
			})
			answer, err := askRueidis(t, client, name)
			expectThrottle(t, name, answer, err, 0, 16, 15, -1, 120)
			options := rueidis.ClientOption{InitAddress: []string{s.addr}, TLSConfig: encrypted, Password: "wrong"}
			change(&options)
			_, err = rueidis.NewClient(options)
			expectError(t, "with a wrong token", err, ".*WRONGPASS.*")
			options.TLSConfig, options.Password = &tls.Config{RootCAs: encrypted.RootCAs, MinVersion: tls.VersionTLS12, ServerName: "else"}, token
			if _, err := rueidis.NewClient(options); err == nil {
				t.Error("another server's name is accepted")
			}
		})
	}
}
