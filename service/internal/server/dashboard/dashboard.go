// Package dashboard serves the pages of the dashboard, which `make web` builds from service/web and which are
// embedded here. They ask the admin API for all that they show.
//
// Scripts and style sheets are embedded compressed, and files have names with a hash of their
// content where they may be cached for ever. A checkout in which nobody has built them has a page
// that says so, and everything else works.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/stint-go/stint/service/internal/server/problem"
)

//go:embed all:dist
var embedded embed.FS

// Report is the script that draws the page of `stint simulate --html` by the code of the dashboard, and its style. Both
// are "" in a program that was built without the dashboard.
func Report() (script, style string) {
	js, _, _ := read(embedded, "dist/report.js.gz") // which is missing where nobody has built it
	css, _, _ := read(embedded, "dist/report.css.gz")
	return string(js), string(css)
}

// read reads a file, which is compressed if its name ends with .gz; small is nil if it is not.
func read(from fs.FS, name string) (plain, small []byte, err error) {
	text, err := fs.ReadFile(from, name)
	if err != nil || !strings.HasSuffix(name, ".gz") {
		return text, nil, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	plain, err = io.ReadAll(unpacked)
	return plain, text, err
}

// policy lets a page load nothing but what is embedded, talk to nobody but this service, and be
// framed by nobody.
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; font-src 'self'; " +
	"img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// notBuilt is what there is instead of a dashboard that was not built.
const notBuilt = `<!doctype html><html lang="en"><meta charset="utf-8"><title>stint</title>
<p>This program was built without its dashboard.
Build it with <code>make build</code>, which needs Node.js 20.19 or later.
`

// A Handler serves the dashboard. It is safe for concurrent use; make it with [New].
type Handler struct {
	files map[string]*file
	built bool
}

// A file is one of the dashboard's.
type file struct {
	kind, tag    string
	plain, small []byte // small is compressed; nil: it is not
	named        bool   // whether its name changes with what is in it
}

// New reads the embedded files.
func New() (*Handler, error) {
	dist, err := fs.Sub(embedded, "dist")
	if err != nil {
		return nil, err
	}
	return load(dist)
}

// load reads the files of the built dashboard. Without them, as in a checkout where nobody has
// built it, there is one page that says how to.
func load(dist fs.FS) (*Handler, error) {
	h := &Handler{files: map[string]*file{}}
	err := fs.WalkDir(dist, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Dir(name) == "." && name != "index.html" { // not of the dashboard
			return err
		}
		plain, small, err := read(dist, name)
		name = strings.TrimSuffix(name, ".gz")
		h.files["/"+name] = newFile(name, plain, small)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stint: the dashboard: %w", err)
	}
	if index := h.files["/index.html"]; index != nil {
		h.files["/"], h.built = index, true
	} else {
		h.files["/"] = newFile("index.html", []byte(notBuilt), nil)
	}
	return h, nil
}

// newFile prepares a file: its type by its name, and its tag by its content.
func newFile(name string, plain, small []byte) *file {
	sum := sha256.Sum256(plain)
	f := &file{
		kind: mime.TypeByExtension(path.Ext(name)), tag: `"` + hex.EncodeToString(sum[:16]) + `"`,
		plain: plain, small: small, named: strings.HasPrefix(name, "assets/"),
	}
	if f.kind == "" || path.Ext(name) == ".js" { // the system's table may say otherwise
		f.kind = map[string]string{".js": "text/javascript; charset=utf-8", ".woff2": "font/woff2"}[path.Ext(name)]
	}
	return f
}

// Built reports whether the program has the dashboard: `go install` from a clone leaves it out.
func (h *Handler) Built() bool { return h.built }

// Serves reports whether a path is one of the dashboard's files.
func (h *Handler) Serves(path string) bool { return h.files[path] != nil }

// Serve serves a file that there is to GET and HEAD.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request) error {
	if err := problem.CheckMethod(r, http.MethodGet, http.MethodHead); err != nil {
		return err
	}
	f := h.files[r.URL.Path]
	header := w.Header()
	header.Set("Content-Type", f.kind)
	header.Set("ETag", f.tag)
	header.Set("Vary", "Accept-Encoding")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Content-Security-Policy", policy)
	header.Set("Cache-Control", "no-cache")
	if f.named {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	text := f.plain
	if f.small != nil && problem.AcceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		text = f.small
	}
	header.Set("Content-Length", fmt.Sprint(len(text)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // a client that is gone has no use for the error
	}
	return nil
}
