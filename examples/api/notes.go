package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// notes is the API itself, which knows nothing of limits: users sign in, write notes and read
// their own.
type notes struct {
	mu       sync.Mutex
	sessions map[string]string   // users by token
	texts    map[string][]string // notes by user
}

func newNotes() *notes {
	return &notes{sessions: map[string]string{}, texts: map[string][]string{}}
}

// handler routes the requests. Limits are put before it, and know the same routes by their rules.
func (n *notes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", n.login)
	mux.HandleFunc("GET /notes", n.read)
	mux.HandleFunc("POST /notes", n.write)
	return mux
}

// user is who a request's token belongs to, "" if nobody.
func (n *notes) user(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sessions[token]
}

// login gives a token for the right password, which is "secret" here.
func (n *notes) login(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if user == "" || password != "secret" {
		http.Error(w, "wrong name or password", http.StatusUnauthorized)
		return
	}
	token := rand.Text()
	n.mu.Lock()
	n.sessions[token] = user
	n.mu.Unlock()
	answer(w, map[string]string{"token": token})
}

func (n *notes) read(w http.ResponseWriter, r *http.Request) {
	user := n.user(r)
	n.mu.Lock()
	texts := append([]string{}, n.texts[user]...)
	n.mu.Unlock()
	answer(w, texts)
}

// maxNote bounds a note.
const maxNote = 1 << 10

// write adds a note of the user who sent it, up to maxNote bytes.
func (n *notes) write(w http.ResponseWriter, r *http.Request) {
	var text string
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxNote)).Decode(&text); err != nil {
		http.Error(w, "the body is no JSON string", http.StatusBadRequest)
		return
	}
	user := n.user(r)
	n.mu.Lock()
	n.texts[user] = append(n.texts[user], text)
	n.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that is gone has no use for the error
}
