// Package grpclimit limits the calls that a grpc-go server gets, by plain limits or by rules:
// interceptors for unary and streaming calls, and a tap handle that refuses before a stream is set
// up.
//
// A call that is refused ends with one of these codes:
//
//	RESOURCE_EXHAUSTED  denied, with google.rpc.QuotaFailure and RetryInfo
//	UNAVAILABLE         the store could not decide
//	INVALID_ARGUMENT    the key or the cost is outside what is allowed
//	CANCELLED, DEADLINE_EXCEEDED  the call ended before it was decided
//	INTERNAL            Key, Cost or Describe failed with an error of another kind
//
// None of their messages carries a key, or anything about the store.
//
// An admitted call gets the metadata x-ratelimit-limit, x-ratelimit-remaining and x-ratelimit-reset
// in its header, a denied one the same and retry-after in its trailer, as package httplimit writes
// them. A decision that a failure policy made says nothing about the limits and gets none.
//
// For the other side, a [Client] limits the calls that a program makes, and heeds
// the RetryInfo of servers.
package grpclimit
