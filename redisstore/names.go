package redisstore

import "strings"

// names are the keys of callers who may leave before a flight has landed, and may then use
// the memory of their keys for others. They are copied one behind another, so that an
// allocation lasts for many flights. What is written stays as it is: a connection may have
// a command to send yet whose flight was given up. The zero value is ready to use.
type names struct{ room strings.Builder }

// namesBytes is how much room is made at once.
const namesBytes = 4096

// keep returns a copy of a name.
func (n *names) keep(name string) string {
	if n.room.Cap()-n.room.Len() < len(name) {
		n.room.Reset()
		n.room.Grow(max(namesBytes, len(name)))
	}
	from := n.room.Len()
	n.room.WriteString(name)
	return n.room.String()[from:]
}
