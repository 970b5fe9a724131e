package redisstore

import (
	"errors"
	"strings"
)

// Reply returns what a server replied in an error of a [Conn], such as "OOM command not allowed when used
// memory > 'maxmemory'.", to the command or to the greeting before it. It is false where no reply came:
// then nobody knows whether the command was executed. Without their "ERR " are replies that begin so.
func Reply(err error) (reply string, ok bool) {
	// As rueidis has them.
	if failure, replied := errors.AsType[interface {
		error
		IsNil() bool
	}](err); replied {
		return failure.Error(), !failure.IsNil()
	}
	// As go-redis marks them, in whatever wraps them.
	if failure, replied := errors.AsType[interface {
		error
		RedisError()
	}](err); replied {
		return strings.TrimPrefix(failure.Error(), "ERR "), true
	}
	return "", false
}
