// Package mcplimit limits what clients ask of a server of the Model Context Protocol that is written with its official
// Go SDK, by plain limits or by rules: by tool, by session and by client. [Middleware.Wrap] is a receiving middleware
// of the SDK's.
//
// A tools/call that is denied gets a result with isError, since models read results and seldom errors. Its text is a
// sentence that says what to do, and its _meta has retryAfterMicros, which is not there when no wait helps. Any other
// call gets a JSON-RPC error with the same text, and retryAfterMicros in its data:
//
//	429     denied: a code outside of the ranges that JSON-RPC and the protocol reserve
//	-32602  the key or the cost is outside what is allowed
//	-32603  the limits could not be decided
//
// None of the texts carries a key, the name of a tool, or anything about the store. Notifications are not limited,
// since nothing answers them.
//
// A client is the user of its bearer token, or what a function says. It is never its clientInfo, which it chooses.
package mcplimit
