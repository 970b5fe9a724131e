package redisstore

import (
	"context"
	"fmt"

	"github.com/stint-go/stint"
)

var _ stint.Forgetter = (*Store)(nil)

// ForgetPolicy implements [stint.Forgetter].
func (s *Store) ForgetPolicy(context.Context, string, func(stint.ForgetProgress)) error {
	return stint.Invalid("store", fmt.Sprintf("%T", s.conn), "one whose connection is a redisstore.Scanner")
}
