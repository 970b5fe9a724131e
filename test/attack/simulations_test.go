package attack_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// mostSimulated is by how many bytes a simulation may grow the service's memory.
const mostSimulated = 256 << 20

// TestSimulations has an administrator simulate what costs most, again and again, beside an innocent client. The last simulation is
// left by its caller.
func TestSimulations(t *testing.T) {
	type text = map[string]any
	rulesOn := func(path func(i int) string, n int, limits string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`{"id":"r%d","match":{"path":%q},"scope":"per_ip","limits":[%s]}`, i, path(i), limits)
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	rules := func(n int, limits string) string {
		return rulesOn(func(int) string { return "/**" }, n, limits)
	}
	// No request meets more than one of these, of which any number may be given.
	rulesApart := func(n int, limits string) string {
		return rulesOn(func(i int) string { return fmt.Sprint("/r", i) }, n, limits)
	}
	candidates := func(rules string) (list []text) {
		for i := range 8 {
			list = append(list, text{"name": fmt.Sprint("c", i), "rules": rules})
		}
		return list
	}
	const window = `{"algorithm":"fixed_window","limit":1000000000,"window":"1h"}`
	limits := make([]string, 64)
	for i := range limits {
		limits[i] = fmt.Sprintf(`{"name":"n%d","algorithm":"sliding_window_log","limit":1000000,"window":"%dm"}`, i, i+1)
	}
	pattern := func(name string, rate float64, clients int, length string) text {
		return text{"name": name, "rate": rate, "clients": clients, "length": length, "window": "1s"}
	}
	crowd := packed(t, "time,ip,path\n", func(i int) string { return fmt.Sprintf("1767225600,2001:db8:%x:%x::,/login\n", i>>16, i&0xffff) })
	long := packed(t, "", func(i int) string {
		return fmt.Sprintf(`{"time":%d,"key":"%d","attributes":{"a":%q}}`+"\n", 1_767_225_600+i/10_000, i, strings.Repeat("x", 900))
	})
	nested := packed(t, "", func(int) string { return strings.Repeat(`{"a":`, 150_000) + strings.Repeat("}", 150_000) + "\n" })
	values := packed(t, "", func(int) string { return `{"time":1767225600,"attributes":[` + strings.Repeat("0,", 400_000) + "0]}\n" })
	for _, attack := range []struct {
		name    string
		request text
		log     []byte
	}{
		{"a million clients", text{"budget": "1000000/1h", "pattern": pattern("poisson", 80_000, 1_000_000, "1m")}, nil},
		{"a billion clients", text{"budget": "100/1m", "pattern": pattern("poisson", 80_000, 1_000_000_000, "1m")}, nil},
		{"a burst of a million clients", text{"budget": "1000000/1h", "pattern": pattern("boundary-burst", 2, 1_000_000, "10s")}, nil},
		{"a storm", text{"budget": "1000000/1h", "pattern": pattern("retry-storm", 400_000, 1_000_000, "10s")}, nil},
		{"8 times 1,000 rules", text{"candidates": candidates(rules(1000, window)), "pattern": pattern("poisson", 1000, 1_000_000, "1h")}, nil},
		{"64 logs a client", text{"candidates": candidates(rules(1, strings.Join(limits, ","))), "pattern": pattern("poisson", 1000, 1000, "1h")}, nil},
		{"4 MB of rules", text{"candidates": candidates(rules(5000, window)), "pattern": pattern("steady", 1, 1, "1m")}, nil},
		{"8 sets of almost 4 MiB", text{"candidates": candidates(rulesApart(3200, window)), "pattern": pattern("steady", 1, 1, "1m")}, nil},
		{"4 MB of values", text{"candidates": []text{{"name": "a", "rules": "[" + strings.Repeat("[],", 1_300_000) + "[]]"}}, "pattern": pattern("steady", 1, 1, "1m")}, nil},
		{"a crowd in one second", text{"budget": "1000000/1h"}, crowd},
		{"limits for a crowd", text{"budget": "1000000/1h", "suggest": text{"share": 0.9}}, crowd},
		{"limits of 64 logs", text{"candidates": candidates(rules(1, strings.Join(limits, ",")))[:1], "suggest": text{"share": 0.9}, "pattern": pattern("poisson", 1000, 1000, "1h")}, nil},
		{"long lines", text{"budget": "1000000/1h"}, long},
		{"deep lines", text{"budget": "1000000/1h"}, nested},
		{"lines of values", text{"budget": "1000000/1h"}, values},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s := startService(t)
			body, kind := simulationOf(t, attack.request, attack.log)
			innocent := s.startInnocent(t)
			before := s.resident(t, "VmRSS")
			ctx, cancel := context.WithTimeout(t.Context(), *lasting)
			defer cancel()
			answers := map[string]int{}
			for ctx.Err() == nil {
				status, says := s.simulate(ctx, t, body, kind)
				if status != 0 {
					answers[fmt.Sprint(status, " ", says)]++
				}
				if status != 0 && status != http.StatusOK && status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge {
					t.Errorf("%d %s", status, says)
					break
				}
			}
			checks, grown := innocent.stop(), s.resident(t, "VmHWM")-before
			t.Logf("%d MiB more, %v", grown>>20, answers)
			t.Logf("innocent:  %s", checks)
			if grown > mostSimulated {
				t.Errorf("the service grew by %d MiB", grown>>20)
			}
			checks.expect(t)
		})
	}
}

// packed is a log of 31 MiB unpacked, by gzip.
func packed(t *testing.T, head string, line func(i int) string) []byte {
	t.Helper()
	var to bytes.Buffer
	z := gzip.NewWriter(&to)
	n, err := io.WriteString(z, head)
	for i := 0; n < 31<<20 && err == nil; i++ {
		var more int
		more, err = io.WriteString(z, line(i))
		n += more
	}
	must.Do(t, errors.Join(err, z.Close()))
	return to.Bytes()
}

func simulationOf(t *testing.T, request any, log []byte) (body []byte, kind string) {
	t.Helper()
	encoded := must.Get(json.Marshal(request))(t)
	var to bytes.Buffer
	form := multipart.NewWriter(&to)
	err := form.WriteField("request", string(encoded))
	if log != nil && err == nil {
		var part io.Writer
		if part, err = form.CreateFormFile("log", "access.log"); err == nil {
			_, err = part.Write(log)
		}
	}
	must.Do(t, errors.Join(err, form.Close()))
	return to.Bytes(), form.FormDataContentType()
}

// simulate asks for a simulation, and returns status 0 if ctx ended it.
func (s *service) simulate(ctx context.Context, t *testing.T, body []byte, kind string) (status int, says string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.admin+"/api/v1/simulate", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	if response.StatusCode != http.StatusOK {
		says = string(text[:min(len(text), 300)])
	}
	return response.StatusCode, says
}

// resident is the service's memory in bytes, VmRSS now or VmHWM at most.
func (s *service) resident(t *testing.T, what string) int {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid)))(t)
	match := regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(text)
	if match == nil {
		t.Fatalf("no %s in %s", what, text)
	}
	n := must.Get(strconv.Atoi(string(match[1])))(t)
	return n << 10
}
