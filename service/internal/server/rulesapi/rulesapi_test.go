package rulesapi

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/service/internal/server/problem"
)

func parse(t *testing.T, text string) document.Value {
	t.Helper()
	var faults document.Faults
	v := document.JSON("test", []byte(text), &faults)
	must.Do(t, faults.Err())
	return v
}

// write is a value as JSON.
func write(v document.Value) string {
	var parts []string
	switch v.Kind {
	case document.KindMapping:
		for _, f := range v.Fields {
			parts = append(parts, `"`+f.Name+`":`+write(f.Value))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case document.KindList:
		for _, item := range v.Items {
			parts = append(parts, write(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case document.KindNull:
		return "null"
	case document.KindText:
		return `"` + v.Text + `"`
	default:
		return v.Text
	}
}

// The examples of RFC 7396, appendix A.
func TestMerge(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Target, Patch, Want string }](t, "testdata/merge.txt") {
		target := parse(t, test.Target)
		if got := write(merge(target, parse(t, test.Patch))); got != test.Want {
			t.Errorf("%s merged into %s is %s, want %s", test.Patch, test.Target, got, test.Want)
		}
		if got := write(target); got != test.Target {
			t.Errorf("the target %s became %s", test.Target, got)
		}
	}
}

// A patch of many members is merged in a moment: looking for each of them among all would take
// minutes.
func TestMergeOfManyMembers(t *testing.T) {
	const members = 200_000
	var target, patch, want document.Value
	for _, v := range []*document.Value{&target, &patch, &want} {
		v.Kind = document.KindMapping
	}
	text := func(name int, text string) document.Field {
		return document.Field{Name: fmt.Sprintf("label-%06d", name), Value: document.Value{Kind: document.KindText, Text: text}}
	}
	for i := range members {
		target.Fields = append(target.Fields, text(i, "was"))
		switch i % 3 {
		case 0: // stays
			want.Fields = append(want.Fields, text(i, "was"))
		case 1: // changes
			patch.Fields = append(patch.Fields, text(i, "is"))
			want.Fields = append(want.Fields, text(i, "is"))
		case 2: // goes
			patch.Fields = append(patch.Fields, document.Field{Name: text(i, "").Name})
		}
	}
	patch.Fields = append(patch.Fields, text(members, "came"), document.Field{Name: "never there"})
	want.Fields = append(want.Fields, text(members, "came"))
	if got := merge(target, patch); !reflect.DeepEqual(got, want) {
		t.Errorf("%d members, want %d", len(got.Fields), len(want.Fields))
	}
}

// If-Match and If-None-Match, RFC 9110, sections 13.1.1 and 13.1.2.
func TestConditions(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Match, NoneMatch, Tag string
		Status                int
	}](t, "testdata/conditions.txt") {
		header := http.Header{}
		for field, value := range map[string]string{"If-Match": test.Match, "If-None-Match": test.NoneMatch} {
			if value != "" {
				header.Set(field, value)
			}
		}
		conditions, err := conditionsOf(header)
		if err != nil {
			t.Errorf("%v: %v", header, err)
			continue
		}
		err = conditions.check(test.Tag)
		var failed *problem.Error
		if status := statusOf(err); status != test.Status || errors.As(err, &failed) && failed.Value != test.Tag {
			t.Errorf("%v of %s: %v, want %d", header, test.Tag, err, test.Status)
		}
	}
	for _, bad := range []string{`a`, `"a`, `W/`, `"a" b`, `w/"a"`, `"`} {
		if _, err := conditionsOf(http.Header{"If-Match": {bad}}); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%s is accepted: %v", bad, err)
		}
	}
	lines := http.Header{"If-Match": {`"a"`, `"b"`}}
	if conditions, err := conditionsOf(lines); err != nil || !slices.Equal(conditions.match.list, []string{`"a"`, `"b"`}) {
		t.Errorf("two lines: %v, %v", conditions, err)
	}
}

// Each route serves its own path and method, and those that change something say so.
func TestRoutes(t *testing.T) {
	var log bytes.Buffer
	a := must.Get(New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry()}))(t)
	var mux problem.Mux[Caller]
	a.Register(&mux)
	fault := errors.New("a fault of the test")
	for _, want := range routes {
		method, path, _ := strings.Cut(want.pattern, " ")
		url := "/api/v1/" + strings.NewReplacer("{rule}", "some%2F%7Bone%7D", "{client}", "%2E%2E", "{number}", "7").Replace(path)
		r := httptest.NewRequestWithContext(t.Context(), method, url, nil)
		log.Reset()
		err := mux.Serve(httptest.NewRecorder(), r, Caller{Name: "ann", Fault: fault}) // who is refused by the route
		if mux.Check(r) != nil || !errors.Is(err, fault) || !strings.Contains(log.String(), "action="+want.action+" ") {
			t.Errorf("%s %s: %v, %v, %s; want %s", method, url, mux.Check(r), err, log.String(), want.action)
		}
		if safe := method == "GET" || want.action == "validate" || want.action == "explain"; want.changes == safe {
			t.Errorf("%s: changes is %v", want.pattern, want.changes)
		}
	}
	for _, url := range []string{"/", "/api/v1/", "/api/v1/rules/", "/api/v1//rules", "/api/v1/rules/a/", "/api/v1/rules//overrides", "/api/v2/rules", "/api/v1/rules/a/../b"} {
		if err := mux.Check(httptest.NewRequestWithContext(t.Context(), "GET", url, nil)); statusOf(err) != http.StatusNotFound {
			t.Errorf("%s: %v", url, err)
		}
	}
}
