//go:build !invariants

package server

// twice is called when a request is answered a second time. That is a bug of
// the handler, and the first answer stands.
func twice(r *Request) {
	r.Conn.server.opts.Logger.Error().Int16("key", r.Header.Key).Int16("version", r.Header.Version).
		Str("client", r.Header.ClientID).Msg("request answered twice")
}
