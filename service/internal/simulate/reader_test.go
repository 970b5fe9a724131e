package simulate_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
)

// read reads texts as files, one after another.
func read(t testing.TB, options simulate.ReaderOptions, texts ...string) ([]simulate.Event, simulate.Input) {
	t.Helper()
	r := must.Get(simulate.NewReader(options))(t)
	var events []simulate.Event
	for _, text := range texts {
		must.Do(t, r.Read(strings.NewReader(text), func(ev *simulate.Event) error {
			events = append(events, *ev)
			return nil
		}))
	}
	input := must.Get(r.Done())(t)
	return events, input
}

// refused is what is wrong with a text of which nothing is read.
func refused(t *testing.T, options simulate.ReaderOptions, text string) string {
	t.Helper()
	r, err := simulate.NewReader(options)
	if err == nil {
		err = r.Read(strings.NewReader(text), func(ev *simulate.Event) error {
			t.Errorf("%q: line %d is a request", text, ev.Line)
			return nil
		})
	}
	if err == nil {
		_, err = r.Done()
	}
	if err == nil {
		t.Fatalf("%q: no error", text)
	}
	return err.Error()
}

func TestFormats(t *testing.T) {
	at := func(text string) stint.Instant {
		parsed := must.Get(time.Parse(time.RFC3339, text))(t)
		return stint.Instant(parsed.UnixMicro())
	}
	tests := []struct {
		name, format, text string
		want               simulate.Event
	}{
		{
			"nginx", "combined",
			`2001:db8:1:2:3::4 - ann [10/Oct/2026:13:55:36 -0700] "GET /a\x22b?c=d HTTP/1.1" 429 2326 "http://example.com/" "Mozilla/5.0 (\x22)"`,
			simulate.Event{Time: at("2026-10-10T20:55:36Z"), Whole: true, Status: 429, Request: rules.Request{Method: "GET", Path: `/a"b?c=d`, Address: "2001:db8:1:2::/64", User: "ann"}},
		},
		{
			"Apache, common", "common",
			`192.0.2.1 - ann [10/Oct/2026:13:55:36 +0000] "GET http://example.com/x HTTP/1.0" 200 -`,
			simulate.Event{Time: at("2026-10-10T13:55:36Z"), Whole: true, Status: 200, Request: rules.Request{Method: "GET", Path: "/x", Host: "example.com", Address: "192.0.2.1", User: "ann"}},
		},
		{
			"Caddy", "caddy",
			`{"level":"info","ts":1790000000.123456,"logger":"http.log.access","request":{"remote_ip":"10.0.0.1","client_ip":"192.0.2.7","method":"POST","host":"example.com:443","uri":"/x?y","headers":{"User-Agent":["curl"]}},"user_id":"bob","duration":0.023456,"status":201}`,
			simulate.Event{Time: 1_790_000_000_100_000, Status: 201, Request: rules.Request{Method: "POST", Path: "/x?y", Host: "example.com:443", Address: "192.0.2.7", User: "bob"}},
		},
		{
			"Envoy", "envoy-json",
			`{"start_time":"2026-10-10T13:55:36.250Z","method":"GET","path":"/x","authority":"example.com","response_code":200,"downstream_remote_address":"192.0.2.7:5555","x_forwarded_for":"10.9.9.9","duration":17}`,
			simulate.Event{Time: at("2026-10-10T13:55:36.25Z"), Status: 200, Request: rules.Request{Method: "GET", Path: "/x", Host: "example.com", Address: "192.0.2.7"}},
		},
		{
			"our own", "json",
			`{"time":1790000000,"ip":"192.0.2.7","api_key":"k","cost":7,"method":"PUT","path":"/","attributes":{"plan":"gold"}}`,
			simulate.Event{Time: 1_790_000_000_000_000, Whole: true, Request: rules.Request{Method: "PUT", Path: "/", Address: "192.0.2.7", APIKey: "k", Attributes: map[string]string{"cost": "7", "plan": "gold"}}},
		},
		{
			"ALB", "alb",
			`h2 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 10.0.1.252:48160 10.0.0.66:9000 0.000 0.002 0.000 200 200 5 257 "GET https://10.0.2.105:773/a HTTP/2.0" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:x "Root=1" "api.example.com" "arn:aws:acm" 1 2018-07-02T22:22:48.364000Z "waf,forward" "-" "-" "10.0.0.66:9000" "200" "-" "-"`,
			simulate.Event{Time: at("2018-07-02T22:22:48.364Z"), Status: 200, Request: rules.Request{Method: "GET", Path: "/a", Host: "10.0.2.105:773", Address: "10.0.1.252"}},
		},
		{
			"a comma before the fraction", "json",
			`{"time":"2026-01-02 15:04:05,123","ip":"192.0.2.7"}`,
			simulate.Event{Time: at("2026-01-02T15:04:05.123Z"), Request: rules.Request{Path: "/", Address: "192.0.2.7"}},
		},
		{
			"a comma behind the day of the week", "json",
			`{"time":"Sat, 10 Oct 2026 13:00:00 GMT","ip":"192.0.2.7"}`,
			simulate.Event{Time: at("2026-10-10T13:00:00Z"), Whole: true, Request: rules.Request{Path: "/", Address: "192.0.2.7"}},
		},
		{
			"CSV", "csv",
			"time,key,cost,plan\n1790000000123,\"a,b\",3,gold",
			simulate.Event{Time: 1_790_000_000_123_000, Request: rules.Request{Path: "/", Address: "a,b", Attributes: map[string]string{"cost": "3", "plan": "gold"}}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var zipped bytes.Buffer
			w := gzip.NewWriter(&zipped)
			_, _ = w.Write([]byte(test.text + "\r\n"))
			_ = w.Close()
			encoder := must.Get(zstd.NewWriter(nil))(t)
			for _, text := range []string{test.text, test.text + "\n", zipped.String(), string(encoder.EncodeAll([]byte(test.text), nil))} {
				events, input := read(t, simulate.ReaderOptions{}, text)
				if input.Malformed > 0 || input.Format != test.format || len(events) != 1 {
					t.Fatalf("%d events, %+v", len(events), input)
				}
				events[0].Line = 0
				if !reflect.DeepEqual(events[0], test.want) {
					t.Errorf("got  %+v\nwant %+v", events[0], test.want)
				}
			}
		})
	}
}

func TestMalformed(t *testing.T) {
	const good = `192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`
	for _, bad := range []string{
		good[:len(good)-1], good[:60], good[:20], strings.Replace(good, "200", "2x0", 1), strings.Replace(good, "Oct", "Okt", 1), strings.Repeat("x", 1<<20+5),
		strings.TrimSuffix(good, ` "-" "curl"`),
	} {
		events, input := read(t, simulate.ReaderOptions{}, good+"\n\n"+bad+"\n"+good+"\n")
		if len(events) != 2 || input.Malformed != 1 || input.Lines != 4 || !strings.HasPrefix(input.FirstMalformed, "line 3: ") {
			t.Errorf("%.90q: %d events of %+v", bad, len(events), input)
		}
	}
	// A first line that is cut does not tell the format.
	events, input := read(t, simulate.ReaderOptions{}, good[40:]+"\n"+good+"\n")
	if len(events) != 1 || input.Malformed != 1 || input.Format != "combined" {
		t.Errorf("%d events of %+v", len(events), input)
	}
	// The header of a second CSV file is no event.
	events, input = read(t, simulate.ReaderOptions{}, "time,key\n1,a\n", "time,key\n2,a\n")
	if len(events) != 2 || input.Malformed != 0 {
		t.Errorf("%d events of %+v", len(events), input)
	}
}

// TestDirtyLog reads a million lines, of which every twentieth is malformed, cut or out of order, and ends with the right counts.
func TestDirtyLog(t *testing.T) {
	lines := 1_000_000
	if testing.Short() {
		lines = 20_000
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var malformed, late, late5, sorted int64
	in, pipe := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(pipe, 64<<10)
		for i := range lines {
			at := int64(1_790_000_000 + i/100)
			line := combinedLine(at, fmt.Sprintf("10.0.%d.%d", rng.IntN(4), rng.IntN(250)), "/")
			if i%20 == 19 {
				switch wrong := rng.IntN(4); {
				case wrong == 0:
					line = "garbage " + line[:rng.IntN(20)]
					malformed++
				case wrong == 1 || i < 1000: // nothing is late at first
					line = line[:len(line)-1-rng.IntN(100)]
					malformed++
				case wrong == 2: // no more than --reorder makes good
					line = combinedLine(at-2, "10.0.0.1", "/")
					late++
					sorted++
				default:
					line = combinedLine(at-60, "10.0.0.1", "/")
					late++
					late5++
				}
			}
			if _, err := out.WriteString(line + "\n"); err != nil {
				return
			}
		}
		_ = out.Flush()
		_ = pipe.Close()
	}()
	r := must.Get(simulate.NewReader(simulate.ReaderOptions{}))(t)
	plain := simulation(t, nil, simulate.LimitRule("r", stint.FixedWindow(10, time.Second)))
	reordered := simulation(t, nil, simulate.LimitRule("r", stint.FixedWindow(10, time.Second)))
	first, second := simulate.NewOrder(0, plain.Add), simulate.NewOrder(5*time.Second, reordered.Add)
	must.Do(t, r.Read(in, func(ev *simulate.Event) error {
		copied := *ev
		if err := first.Add(ev); err != nil {
			return err
		}
		return second.Add(&copied)
	}))
	for i, order := range []*simulate.Order{first, second} {
		must.Do(t, order.Flush())
		report := finish(t, []*simulate.Simulation{plain, reordered}[i])
		total := report.Candidates[0].Total
		wantLate := []int64{late, late5}[i]
		if input, _ := r.Done(); input.Lines != int64(lines) || input.Malformed != malformed || report.Events != int64(lines)-malformed ||
			total.Admitted+total.Denied != report.Events || report.WholeSeconds != report.Events || report.Late != wantLate {
			t.Errorf("reorder %d: %d events, %d late, %d denied, of %+v; want %d malformed and %d late", 5*i, report.Events, report.Late, total.Denied, input, malformed, wantLate)
		}
	}
	if sorted == 0 || late5 == 0 {
		t.Error("nothing was out of order")
	}
}

// combinedLine has 220 bytes.
func combinedLine(at int64, client, path string) string {
	line := fmt.Sprintf(`%s - - [%s] "GET %s HTTP/1.1" 200 2326 "https://www.example.com/start" "Mozilla/5.0 (X11; Linux x86_64)`,
		client, time.Unix(at, 0).UTC().Format("02/Jan/2006:15:04:05 -0700"), path)
	return line + strings.Repeat("x", max(0, 219-len(line))) + `"`
}

func TestOrderSpreads(t *testing.T) {
	var got []stint.Instant
	o := simulate.NewOrder(2*time.Second, func(ev *simulate.Event) error {
		got = append(got, ev.Time)
		return nil
	})
	const s = 1_000_000
	for _, ev := range []simulate.Event{
		{Time: 10 * s, Whole: true},
		{Time: 11 * s, Whole: true},
		{Time: 10 * s, Whole: true},
		{Time: 10*s + 250_000},
		{Time: 11 * s, Whole: true},
		{Time: 14 * s, Whole: true},
		{Time: 11 * s, Whole: true},
		{Time: 13 * s},
	} {
		must.Do(t, o.Add(&ev))
	}
	must.Do(t, o.Flush())
	want := []stint.Instant{10 * s, 10*s + 250_000, 10*s + 500_000, 11 * s, 11*s + 500_000, 11 * s, 13 * s, 14 * s}
	if !reflect.DeepEqual(got, want) { // the second last one of the seconds 11 came when that was gone
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// FuzzReader reads any text in any format: without a panic, and with an error if there is no request in it.
func FuzzReader(f *testing.F) {
	for _, log := range madeUpLogs(f) {
		f.Add(log.format, []byte(log.lines))
		f.Add("", []byte(log.lines))
	}
	for name, wrap := range wrapped {
		f.Add(name, []byte(wrap(`192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`, 1)+"\n"))
	}
	f.Add("csv", []byte("time,key,cost\n1,\"a,3\n2,b,0\n"))
	f.Add("", []byte{0x1f, 0x8b, 8, 0})
	f.Add("", []byte{0x28, 0xb5, 0x2f, 0xfd, 0})
	f.Add("", []byte(bzipped))
	set := candidate(f, "", simulate.LimitRule("r", stint.TokenBucket(2, stint.PerSecond(1))))
	proxies := clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	f.Fuzz(func(t *testing.T, format string, data []byte) {
		r, err := simulate.NewReader(simulate.ReaderOptions{Format: format, Headers: len(data)%2 == 0, MaxBytes: 1 << 22, ClientIP: proxies})
		if err != nil {
			format = ""
			r = must.Get(simulate.NewReader(simulate.ReaderOptions{Address: true, MaxBytes: 1 << 22}))(t)
		}
		s := must.Get(simulate.New(simulate.Config{Candidates: []simulate.Candidate{set}}))(t)
		read := int64(0)
		order := simulate.NewOrder(time.Second, func(ev *simulate.Event) error {
			if ev.Time < 0 || ev.Request.Path == "" || format == "" && ev.Request.Address+ev.Request.User+ev.Request.APIKey == "" && len(ev.Request.Attributes) == 0 {
				t.Errorf("by %q: line %d is %+v", format, ev.Line, ev)
			}
			return s.Add(ev)
		})
		fault := r.Read(bytes.NewReader(data), func(ev *simulate.Event) error { // of what claims to be compressed
			read++
			return order.Add(ev)
		})
		must.Do(t, order.Flush())
		input, err := r.Done()
		if report := finish(t, s); report.Events != read || read != input.Requests || read+input.Malformed > input.Lines {
			t.Errorf("by %q: %d events, %d read, of %+v", format, report.Events, read, input)
		}
		if read == 0 && fault == nil && err == nil {
			t.Errorf("by %q: no request, and no error", format)
		}
	})
}
