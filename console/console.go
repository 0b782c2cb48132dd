package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

// Health tells how the broker is.
type Health interface {
	// Ready is nil when the broker takes part in the cluster, else why not.
	Ready() error
}

// Metrics reads the broker's metrics; metric.Registry is one.
type Metrics interface {
	Read() []metric.Reading
}

// Partitions reads the partitions that the broker hosts.
type Partitions interface {
	// Partitions fills in what a query asks for.
	Partitions(Query) Listing
}

// Options of a Server.
type Options struct {
	Addr       string // HOST:PORT; an empty host is loopback
	Health     Health
	Metrics    Metrics
	Partitions Partitions
	Logger     zerolog.Logger
}

// Bounds of what a client can take up.
const (
	maxConnections = 64
	maxScrapes     = 4 // of /metrics at a time
	maxListings    = 8 // of /v1/partitions at a time
	headerBytes    = 8 << 10
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 30 * time.Second
)

// Server serves the console on one listener.
type Server struct {
	listener net.Listener
	http     *http.Server
	log      zerolog.Logger
	done     chan struct{} // closed when the serving goroutine has ended; nil before Start
}

// Listen opens the listener; Start serves it.
func Listen(o Options) (*Server, error) {
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("kbroker.http.listener=%s: want HOST:PORT: %w", o.Addr, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("kbroker.http.listener=%s: %w; choose another address, or leave the key out for no HTTP listener", o.Addr, err)
	}
	return &Server{listener: limit(l, maxConnections), log: o.Logger, http: &http.Server{
		Handler: Handler(o), MaxHeaderBytes: headerBytes, ReadHeaderTimeout: headerTimeout,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: log.New(debugLog{o.Logger}, "", 0),
	}}, nil
}

// debugLog takes what net/http has to say of single clients.
type debugLog struct{ zerolog.Logger }

func (d debugLog) Write(p []byte) (int, error) {
	d.Debug().Msg(string(p))
	return len(p), nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Start serves until Close.
func (s *Server) Start() {
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error().Err(err).Msg("the HTTP listener has ended")
		}
	}()
}

// Close ends the server: requests in flight are answered as long as ctx allows.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if s.done == nil { // never served: Shutdown does not know the listener
		return s.listener.Close()
	}
	<-s.done
	return err
}

// Handler answers the console's requests.
func Handler(o Options) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), exporter{o.Metrics})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Health.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		plain(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorLog: log.New(debugLog{o.Logger}, "", 0), ErrorHandling: promhttp.HTTPErrorOnError}))
	listings := make(chan struct{}, maxListings)
	mux.HandleFunc("GET /v1/partitions", func(w http.ResponseWriter, r *http.Request) {
		select {
		case listings <- struct{}{}:
			defer func() { <-listings }()
		default:
			plain(w, http.StatusServiceUnavailable, "too many listings at a time, ask again")
			return
		}
		q, err := parseQuery(r.URL.Query())
		if err != nil {
			answer(w, http.StatusBadRequest, struct {
				Error string `json:"error"`
			}{err.Error()})
			return
		}
		answer(w, http.StatusOK, o.Partitions.Partitions(q))
	})
	return secured(mux)
}

// secured keeps answers out of caches, frames and foreign pages.
func secured(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Cache-Control":                "no-store",
			"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Referrer-Policy":              "no-referrer",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
		} {
			w.Header().Set(name, value)
		}
		if r.ContentLength != 0 {
			http.Error(w, "a request here has no body", http.StatusRequestEntityTooLarge)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // a client that has gone needs no answer
}

func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
