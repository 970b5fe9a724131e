package xds

import (
	"context"
	"time"
)

// SleepBy has a client wait by another function.
func (c *Client) SleepBy(sleep func(context.Context, time.Duration) error) { c.config.sleep = sleep }

// Decode makes a domain of a resource.
var Decode = decode
