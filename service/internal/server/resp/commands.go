package resp

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A command is one that clients may send. Arguments are checked by number here, before run sees
// them; what they are is run's to check.
type command struct {
	name string
	// least and most are how many arguments there are, the name included; most is below 0 for any
	// number.
	least, most int
	// free needs no token, as what shows one.
	free bool
	// keyed is for those who may name keys, asks for those who may ask at all.
	keyed, asks bool
	// atOnce is not queued by MULTI.
	atOnce bool
	// batched is decided with those beside it.
	batched bool
	// inTurn waits for its turn, as decisions do: its answer is more work than to read it.
	inTurn bool
	run    func(c *conn, args [][]byte)
}

// table is the commands by their names. What Redis has and is not here is an unknown command, as of
// a Redis that is older. Names, bounds and rights are in one table, so that COMMAND tells what do
// checks.
func (s *Server) table() map[string]*command {
	named := map[string]*command{}
	for _, d := range []command{
		{name: "CL.THROTTLE", least: 5, most: 6, keyed: true, batched: true, run: (*conn).throttled},
		{name: "EVAL", least: 3, most: -1, keyed: true, batched: true, run: (*conn).eval},
		{name: "EVALSHA", least: 3, most: -1, keyed: true, batched: true, run: (*conn).evalSHA},
		{name: "SCRIPT", least: 2, most: -1, asks: true, inTurn: true, run: (*conn).script},
		{name: "STINT.CHECK", least: 3, most: 4, keyed: true, batched: true, run: (*conn).check},
		{name: "STINT.EVALUATE", least: 3, most: -1, asks: true, run: (*conn).evaluate},
		{name: "STINT.RESERVE", least: 6, most: 6, keyed: true, run: (*conn).reserveHold},
		{name: "STINT.COMMIT", least: 3, most: 6, keyed: true, run: (*conn).commitHold},
		{name: "STINT.CANCEL", least: 2, most: 4, keyed: true, run: (*conn).cancelHold},
		{name: "DEL", least: 2, most: -1, keyed: true, run: (*conn).remove},
		{name: "UNLINK", least: 2, most: -1, keyed: true, run: (*conn).remove},
		{name: "EXISTS", least: 2, most: -1, keyed: true, run: (*conn).exists},
		{name: "TTL", least: 2, most: 2, keyed: true, run: (*conn).ttl},
		{name: "PTTL", least: 2, most: 2, keyed: true, run: (*conn).ttl},
		{name: "PING", least: 1, most: 2, run: (*conn).ping},
		{name: "ECHO", least: 2, most: 2, run: func(c *conn, args [][]byte) { c.bulk(text(args[1])) }},
		{name: "SELECT", least: 2, most: 2, run: (*conn).selectDB},
		{name: "CLIENT", least: 2, most: -1, run: (*conn).client},
		{name: "COMMAND", least: 1, most: -1, inTurn: true, run: (*conn).describe},
		{name: "CONFIG", least: 2, most: -1, inTurn: true, run: (*conn).config},
		{name: "INFO", least: 1, most: -1, inTurn: true, run: (*conn).info},
		{name: "CLUSTER", least: 2, most: -1, run: func(c *conn, _ [][]byte) {
			c.fail("ERR", "This instance has cluster support disabled")
		}},
		{name: "HELLO", least: 1, most: 7, free: true, run: (*conn).hello},
		{name: "AUTH", least: 2, most: 3, free: true, run: (*conn).auth},
		{name: "RESET", least: 1, most: 1, free: true, atOnce: true, run: (*conn).reset},
		{name: "QUIT", least: 1, most: -1, free: true, atOnce: true, run: (*conn).quit},
		{name: "MULTI", least: 1, most: 1, atOnce: true, run: (*conn).multi},
		{name: "EXEC", least: 1, most: 1, atOnce: true, run: (*conn).exec},
		{name: "DISCARD", least: 1, most: 1, atOnce: true, run: func(c *conn, _ [][]byte) {
			if !c.discard() {
				c.fail("ERR", "DISCARD without MULTI")
				return
			}
			c.ok()
		}},
	} {
		named[d.name] = &d
	}
	return named
}

// find finds a command by its name in any case. It allocates nothing. The longest name has 14
// bytes; what is longer is no command.
func (s *Server) find(name []byte) *command {
	var upper [16]byte
	if len(name) > len(upper) {
		return nil
	}
	for i, c := range name {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	return s.commands[string(upper[:len(name)])]
}

// is reports whether a word is a name, in any case.
func is(word []byte, name string) bool { return strings.EqualFold(text(word), name) }

// do carries out a command, which came as some text, or queues it. The checks come in this order:
// known, token, arguments, rights, MULTI. A token comes before the number of arguments, so that
// nobody without one learns more than that there is a command.
func (c *conn) do(args [][]byte, came []byte) {
	c.done++
	cmd := c.command
	if cmd == nil || cmd.name != text(args[0]) { // most often it is the one before
		cmd = c.server.find(args[0])
		c.command = cmd
	}
	switch {
	// This is the protection of Redis itself from cross-protocol requests (POST and Host: as
	// commands).
	case cmd == nil && came[0] != '*':
		// What is no array may be the head of a request of HTTP, which a page in a browser can have sent
		// here.
		c.refuse("ERR", fmt.Sprintf("unknown command '%.32s', in a line that is no array; the connection is closed", args[0]))
		c.ending = true
	case cmd == nil:
		c.refuse("ERR", unknown(args))
	case !cmd.free && c.server.config.Tokens && c.token == "":
		c.server.config.Refused(c.address, c.unable)
		c.refuse("NOAUTH", "Authentication required.")
	case len(args) < cmd.least || cmd.most >= 0 && len(args) > cmd.most:
		c.refuse("ERR", fmt.Sprintf("wrong number of arguments for '%s' command", strings.ToLower(cmd.name)))
	case cmd.keyed && c.refused != nil:
		c.mayNot(c.refused)
	case cmd.asks && c.unable != nil:
		c.mayNot(c.unable)
	case c.queue != nil && !cmd.atOnce:
		c.enqueue(came)
	default:
		if !cmd.batched {
			c.decide() // its answer comes behind theirs
		}
		if cmd.inTurn {
			_, leave, err := c.server.config.Enter(c.ctx, c.address, fewOperations+int64(len(args)))
			if err != nil {
				c.explain(err)
				return
			}
			defer leave()
		}
		cmd.run(c, args)
	}
}

// fewOperations is about as much work as an answer of COMMAND, CONFIG or INFO is. Each argument may be one more.
const fewOperations = 4

// refuse answers a command that is not carried out. EXEC will not carry out those beside it.
func (c *conn) refuse(code, why string) {
	c.decide()
	c.broken()
	c.fail(code, why)
}

// mayNot refuses a command that the client has no right to. The error says by itself whether a
// token is missing, wrong, or has no right.
func (c *conn) mayNot(why error) {
	c.decide()
	c.broken()
	c.explain(why)
}

// broken makes EXEC refuse what was queued.
func (c *conn) broken() {
	if c.queue != nil {
		c.queue.broken = true
	}
}

// unknown is what Redis says of a command that it does not know.
func unknown(args [][]byte) string {
	var said strings.Builder
	fmt.Fprintf(&said, "unknown command '%.128s', with args beginning with: ", args[0])
	for _, arg := range args[1:] {
		if said.Len() > 256 {
			break
		}
		fmt.Fprintf(&said, "'%.64s' ", arg)
	}
	return said.String()
}

// ping answers PING [text].
func (c *conn) ping(args [][]byte) {
	if len(args) == 2 {
		c.bulk(text(args[1]))
		return
	}
	c.simple("PONG")
}

// selectDB answers SELECT: each database has keys of its own for CL.THROTTLE.
func (c *conn) selectDB(args [][]byte) {
	n := digits(args[1])
	if n < 0 || n >= databases {
		c.fail("ERR", "DB index is out of range")
		return
	}
	c.db = n
	c.ok()
}

// client tells about the connection. What stint does not do is an error, as of a server that does not know it: some
// clients take an OK for a promise.
func (c *conn) client(args [][]byte) {
	switch sub := args[1]; {
	case is(sub, "SETNAME") && len(args) == 3:
		c.setName(args[2])
	case is(sub, "GETNAME") && len(args) == 2:
		if c.name == "" {
			c.null()
			return
		}
		c.bulk(c.name)
	case is(sub, "ID") && len(args) == 2:
		c.integer(c.number)
	case is(sub, "SETINFO") && len(args) == 4, is(sub, "NO-EVICT") && len(args) == 3,
		is(sub, "NO-TOUCH") && len(args) == 3,
		is(sub, "TRACKING") && len(args) >= 3: // nothing that a client could keep ever changes
		c.ok()
	default:
		c.noSub(sub, "GETNAME, ID, NO-EVICT, NO-TOUCH, SETINFO, SETNAME, TRACKING")
	}
}

// noSub answers a subcommand that is none of those that are allowed.
func (c *conn) noSub(sub []byte, allowed string) {
	c.fail("ERR", fmt.Sprintf("unknown subcommand or wrong number of arguments for '%.32s'; allowed: %s", sub, allowed))
}

// notName is what is wrong with a name that isName refuses.
const notName = "Client names cannot contain spaces, newlines or special characters, and have at most 64 bytes."

// isName checks a client's name as Redis does it, since names stand in lists with spaces between.
func isName(name []byte) bool {
	return len(name) <= 64 && !slices.ContainsFunc(name, func(b byte) bool { return b < '!' || b > '~' })
}

// setName is CLIENT SETNAME name.
func (c *conn) setName(name []byte) {
	if !isName(name) {
		c.fail("ERR", notName)
		return
	}
	c.name = string(name)
	c.ok()
}

// describe answers COMMAND, by which some clients learn what there is and where its keys are.
func (c *conn) describe(args [][]byte) {
	switch {
	case len(args) == 1 || is(args[1], "INFO"):
		c.describeAll(args)
	case is(args[1], "COUNT") && len(args) == 2:
		c.integer(int64(len(c.server.commands)))
	case is(args[1], "DOCS"):
		c.mapping(0)
	case is(args[1], "LIST") && len(args) == 2:
		c.array(len(c.server.commands))
		for name := range c.server.commands {
			c.bulk(strings.ToLower(name))
		}
	default:
		c.noSub(args[1], "COUNT, DOCS, INFO, LIST")
	}
}

// describeAll answers COMMAND and COMMAND INFO: name, arity (negative if there may be more), flags,
// and the places of the first and the last key and the step between. Keys are at the place 1 of all
// commands that have some, which is what cluster clients look for.
func (c *conn) describeAll(args [][]byte) {
	var names [][]byte
	if len(args) > 2 {
		names = args[2:]
	} else {
		for name := range c.server.commands {
			names = append(names, []byte(name))
		}
	}
	c.array(len(names))
	for _, name := range names {
		cmd := c.server.find(name)
		if cmd == nil {
			c.null()
			continue
		}
		arity, key := cmd.least, 0
		if cmd.most != cmd.least {
			arity = -cmd.least
		}
		if cmd.keyed {
			key = 1
		}
		c.array(6)
		c.bulk(strings.ToLower(cmd.name))
		c.integer(int64(arity))
		c.array(1)
		c.simple("fast")
		c.integer(int64(key))
		c.integer(int64(key))
		c.integer(int64(key))
	}
}

// settings are those that programs ask for before they begin. They say that there is no bound, no
// snapshot and no file.
var settings = []struct{ name, value string }{
	{"appendonly", "no"}, {"databases", strconv.Itoa(databases)}, {"maxmemory", "0"}, {"save", ""}, {"timeout", "0"},
}

// Patterns of CONFIG GET are few and short, as settings are: each is compared with each setting.
const (
	maxPatterns     = 16
	maxPatternBytes = 64
)

// config answers CONFIG GET with the settings that match any of the patterns.
func (c *conn) config(args [][]byte) {
	if !is(args[1], "GET") || len(args) < 3 {
		c.noSub(args[1], "GET")
		return
	}
	long := func(pattern []byte) bool { return len(pattern) > maxPatternBytes }
	if len(args)-2 > maxPatterns || slices.ContainsFunc(args[2:], long) {
		c.fail("ERR", fmt.Sprintf("too many patterns for 'config|get' command, or a long one; allowed: %d of %d bytes",
			maxPatterns, maxPatternBytes))
		return
	}
	asked := func(name string) bool {
		return slices.ContainsFunc(args[2:], func(word []byte) bool {
			found, err := path.Match(strings.ToLower(text(word)), name)
			return err == nil && found
		})
	}
	n := 0
	for _, s := range settings {
		if asked(s.name) {
			n++
		}
	}
	c.mapping(n)
	for _, s := range settings {
		if asked(s.name) {
			c.textOf(s.name, s.value)
		}
	}
}

// speaks is the version of Redis whose first words are answered. Clients choose by it what they
// send; this one has the first words of Redis 7. Clients look at the first number most of all.
const speaks = "7.2.0"

// info tells what programs ask for, and what redis-cli --stat shows. The commands of what has just come are not among
// the processed ones yet.
func (c *conn) info([][]byte) {
	s := c.server
	s.mu.Lock()
	clients := len(s.conns)
	s.mu.Unlock()
	c.bulk("# Server\r\nredis_version:" + speaks + "\r\nserver_name:stint\r\nstint_version:" + s.config.Version +
		"\r\nredis_mode:standalone\r\n\r\n# Persistence\r\nloading:0\r\n\r\n# " +
		"Replication\r\nrole:master\r\nconnected_slaves:0\r\n" +
		"\r\n# Cluster\r\ncluster_enabled:0\r\n" +
		fmt.Sprintf("\r\n# Clients\r\nconnected_clients:%d\r\nblocked_clients:%d\r\n\r\n# Memory\r\nused_memory:%d\r\n"+
			"\r\n# Stats\r\ntotal_connections_received:%d\r\ntotal_commands_processed:%d\r\n",
			clients, s.evaluating.Load(), s.config.Memory(), s.last.Load(), s.done.Load()))
}

// hello is HELLO [2|3 [AUTH user token] [SETNAME name]]. It changes nothing if any part of it is
// wrong.
func (c *conn) hello(args [][]byte) {
	three := c.three
	if len(args) > 1 {
		version, err := strconv.Atoi(text(args[1]))
		if err != nil || version != 2 && version != 3 {
			c.fail("NOPROTO", "unsupported protocol version")
			return
		}
		three = version == 3
	}
	var token, name []byte
	for at := 2; at < len(args); {
		switch {
		case is(args[at], "AUTH") && at+2 < len(args):
			token = args[at+2]
			at += 3
		case is(args[at], "SETNAME") && at+1 < len(args):
			if name = args[at+1]; !isName(name) {
				c.fail("ERR", notName)
				return
			}
			at += 2
		default:
			c.fail("ERR", fmt.Sprintf("Syntax error in HELLO option '%.32s'", args[at]))
			return
		}
	}
	if token != nil && !c.authenticate(token) {
		return
	}
	if c.server.config.Tokens && c.token == "" {
		c.server.config.Refused(c.address, c.unable)
		c.fail("NOAUTH", "HELLO must be called with the client already authenticated, "+
			"otherwise the HELLO <proto> AUTH <user> <token> option can be used "+
			"to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if name != nil {
		c.name = string(name)
	}
	proto := int64(2)
	if c.three = three; three {
		proto = 3
	}
	c.mapping(7)
	c.textOf("server", "stint")
	c.textOf("version", speaks)
	c.integerOf("proto", proto)
	c.integerOf("id", c.number)
	c.textOf("mode", "standalone")
	c.textOf("role", "master")
	c.listOf("modules", nil)
}

// auth is AUTH [user] token: any user has the service's tokens.
func (c *conn) auth(args [][]byte) {
	if len(args) == 2 && !c.server.config.Tokens {
		c.fail("ERR", "AUTH <password> called without any password configured for the default user: "+
			"api.tokens_file names none")
		return
	}
	if c.authenticate(args[len(args)-1]) {
		c.ok()
	}
}

// maxGuesses is how many tokens a connection may try that are not known. A program that guesses has
// to connect anew, which the limits of connections slow down.
const maxGuesses = 8

// authenticate takes a token. Where none is needed, any user is let in with any, as the default
// user of Redis is.
func (c *conn) authenticate(token []byte) bool {
	if !c.server.config.Tokens {
		return true
	}
	given := string(token)
	if err := c.server.config.MayAsk(given); err != nil {
		c.server.config.Refused(c.address, err)
		c.fail("WRONGPASS", "invalid username-password pair or user is disabled.")
		c.guesses++
		c.ending = c.ending || c.guesses >= maxGuesses
		return false
	}
	c.authorise(given)
	return true
}

// reset answers RESET: the connection is as new, without a token.
func (c *conn) reset([][]byte) {
	c.discard()
	c.name, c.three, c.db = "", false, 0
	c.authorise("")
	c.simple("RESET")
}

// quit answers QUIT, and ends the connection.
func (c *conn) quit([][]byte) {
	c.ok()
	c.ending = true
}
