package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// A Scanner is a [Conn] that can walk through the keys of its servers, which
// [Store.ForgetPolicy] needs. The connections of [Open] and [Connect], of [Rueidis] and of
// package goredis are Scanners.
type Scanner interface {
	// Servers asks who holds keys: the one server, or the primaries of a cluster. The
	// view changes when keys may have moved from one of them to another.
	Servers(ctx context.Context) (view string, servers []Server, err error)
}

// A Server is one of the servers that hold a store's keys.
type Server interface {
	// Scan makes one step through the keys. It sends INFO server, DBSIZE and SCAN with the
	// cursor, MATCH and COUNT, over one connection, so that they reach one server.
	Scan(ctx context.Context, cursor uint64, match string, count int) (Scanned, error)
}

// Scanned is what a server replied to a step.
type Scanned struct {
	Info   string   // to INFO server
	Size   int64    // to DBSIZE: how many keys there are
	Cursor uint64   // for the next step; 0 at the end
	Keys   []string // that match
}

// run is the server's run_id, by which one that was started anew, and another one, is
// told from it: cursors mean something to one run of a server alone.
func (s *Scanned) run() string {
	_, rest, _ := strings.Cut(s.Info, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}

// scanCommands are the commands of a step.
func scanCommands(cursor uint64, match string, count int) []command {
	return []command{
		{args: []string{"INFO", "server"}},
		{args: []string{"DBSIZE"}},
		{args: []string{"SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", strconv.Itoa(count)}},
	}
}

// readScan reads the replies to scanCommands.
func readScan(results []rueidis.RedisResult) (s Scanned, err error) {
	var infoErr, sizeErr error
	s.Info, infoErr = results[0].ToString()
	s.Size, sizeErr = results[1].AsInt64()
	entry, err := results[2].AsScanEntry()
	s.Cursor, s.Keys = entry.Cursor, entry.Elements
	return s, errors.Join(infoErr, sizeErr, err)
}

// Scan implements [Server].
func (l *link) Scan(ctx context.Context, cursor uint64, match string, count int) (Scanned, error) {
	return readScan(l.doTogether(ctx, scanCommands(cursor, match, count)))
}

var (
	_ Asker = (*link)(nil)
	_ Asker = rueidisServer{}
)

// Ask implements [Asker].
func (l *link) Ask(ctx context.Context, args ...string) ([]string, error) {
	return stringsOf(l.do(ctx, command{args: args}))
}

// stringsOf are the strings of a reply.
func stringsOf(result rueidis.RedisResult) ([]string, error) {
	reply, err := result.ToMessage()
	if err != nil {
		return nil, err
	}
	if text, err := reply.ToString(); err == nil {
		return []string{text}, nil
	}
	if !reply.IsMap() {
		return reply.AsStrSlice()
	}
	fields, err := reply.AsStrMap()
	var list []string
	for name, value := range fields {
		list = append(list, name, value)
	}
	return list, err
}

// Servers implements [Scanner].
func (d *direct) Servers(context.Context) (view string, servers []Server, err error) {
	return "", []Server{d.link()}, nil
}

// Servers implements [Scanner].
func (c *clusterConn) Servers(ctx context.Context) (string, []Server, error) {
	view, err := c.ask(ctx)
	if err != nil {
		return "", nil, err
	}
	var servers []Server
	for _, address := range view.primaries() {
		l, err := c.node(address)
		if err != nil {
			return "", nil, err
		}
		servers = append(servers, l)
	}
	return view.text, servers, nil
}

// rueidisServer is a server that a rueidis client leads to.
type rueidisServer struct {
	conn   *rueidisConn
	client rueidis.Client
}

// Scan implements [Server].
func (s rueidisServer) Scan(ctx context.Context, cursor uint64, match string, count int) (Scanned, error) {
	if err := s.conn.enter(); err != nil {
		return Scanned{}, err
	}
	defer s.conn.under.Done()
	commands := scanCommands(cursor, match, count)
	built := make(rueidis.Commands, len(commands))
	for i, c := range commands {
		built[i] = c.build(s.client.B())
	}
	return readScan(s.client.DoMulti(ctx, built...))
}

// Ask implements [Asker].
func (s rueidisServer) Ask(ctx context.Context, args ...string) ([]string, error) {
	if err := s.conn.enter(); err != nil {
		return nil, err
	}
	defer s.conn.under.Done()
	return stringsOf(s.client.Do(ctx, command{args: args}.build(s.client.B())))
}

// Servers implements [Scanner].
func (c *rueidisConn) Servers(ctx context.Context) (string, []Server, error) {
	if !c.cluster {
		return "", []Server{rueidisServer{c, c.client}}, nil
	}
	if err := c.enter(); err != nil {
		return "", nil, err
	}
	defer c.under.Done()
	// A node that does not know its own address is not found among the nodes.
	view, err := readView(c.client.Do(ctx, c.client.B().ClusterSlots().Build()), ":0")
	if err != nil {
		return "", nil, err
	}
	nodes := c.client.Nodes()
	var servers []Server
	for _, address := range view.primaries() {
		node, known := nodes[address]
		if !known {
			return "", nil, fmt.Errorf("the client does not know the primary %s yet", address)
		}
		servers = append(servers, rueidisServer{c, node})
	}
	return view.text, servers, nil
}
