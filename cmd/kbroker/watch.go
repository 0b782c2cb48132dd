package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/console"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// watchOptions are the flags of watch.
type watchOptions struct {
	http  []string
	topic string
	every time.Duration
	once  bool
}

// Bounds of what is taken from a broker.
const (
	watchTimeout   = 2 * time.Second
	watchBodyBytes = 64 << 20
	watchPages     = 100
)

func newWatchCommand() *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Watch partitions live: offsets, ISR and how far followers are",
		Long: `watch shows a row for each partition and renews it a few times a second: its
leader and epoch, the log's start, HW and LEO, how many records come in, the ISR,
and by how many records each follower is behind (? where it has not fetched in
this epoch). It asks brokers that have kbroker.http.listener set; of several, the
row of a partition's leader is shown, or that of a follower while nobody leads.

Where the output is no terminal, each row that changed becomes a line. With --once
brokers that do not answer are told on standard error; that none answers is an error.`,
		Example: `  kbroker server.properties --override kbroker.http.listener=:8080
  kbroker watch --topic orders
  kbroker watch --http broker1:8080,broker2:8080,broker3:8080
  kbroker watch --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.every < 10*time.Millisecond {
				return fmt.Errorf("--every %v: at least 10ms", o.every)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			out := cmd.OutOrStdout()
			switch f, ok := out.(*os.File); {
			case o.once:
				return watchOnce(ctx, out, cmd.ErrOrStderr(), o)
			case ok && term.IsTerminal(int(f.Fd())):
				size := func() (w, h int) {
					if w, h, err := term.GetSize(int(f.Fd())); err == nil {
						return w, h
					}
					return 80, 24
				}
				return watchScreen(ctx, f, size, o)
			}
			return watchLines(ctx, out, o)
		},
	}
	cmd.Flags().StringSliceVar(&o.http, "http", []string{"localhost:8080"}, "`HOST:PORT` of the kbroker.http.listener of one or more brokers")
	cmd.Flags().StringVar(&o.topic, "topic", "", "this topic only")
	cmd.Flags().DurationVar(&o.every, "every", 250*time.Millisecond, "how often to look")
	cmd.Flags().BoolVar(&o.once, "once", false, "print the table once and end")
	return cmd
}

// seen is what one broker showed last.
type seen struct {
	addr    string
	listing console.Listing
	err     error // it did not answer; listing is of no broker then
}

// sources asks every broker by itself, so that one that hangs holds up none.
type sources struct {
	client http.Client
	topic  string
	limit  int // rows wanted; 0: all

	mu   sync.Mutex
	list []seen
}

func newSources(o watchOptions, limit int) *sources {
	s := &sources{topic: o.topic, limit: limit, client: http.Client{Timeout: watchTimeout}}
	for _, addr := range o.http {
		s.list = append(s.list, seen{addr: addr, err: errNotAsked})
	}
	return s
}

var errNotAsked = errors.New("not asked yet")

// keep asks every broker again and again until ctx ends.
func (s *sources) keep(ctx context.Context, every time.Duration) (wait func()) {
	var wg sync.WaitGroup
	for i := range s.list {
		wg.Go(func() {
			for ctx.Err() == nil {
				s.ask(ctx, i)
				select {
				case <-ctx.Done():
				case <-time.After(every):
				}
			}
		})
	}
	return wg.Wait
}

// once asks every broker one time.
func (s *sources) once(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range s.list {
		wg.Go(func() { s.ask(ctx, i) })
	}
	wg.Wait()
}

func (s *sources) ask(ctx context.Context, i int) {
	listing, err := s.fetch(ctx, s.list[i].addr)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[i].listing, s.list[i].err = listing, err
}

func (s *sources) latest() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.list...)
}

// fetch reads a broker's partitions, page after page, until there are enough.
func (s *sources) fetch(ctx context.Context, addr string) (console.Listing, error) {
	var all console.Listing
	for after, page := "", 0; page < watchPages; page++ {
		l, err := s.page(ctx, addr, after)
		if err != nil {
			return console.Listing{}, err
		}
		l.Partitions = append(all.Partitions, l.Partitions...)
		all, after = l, l.Next
		if after == "" || s.limit > 0 && len(all.Partitions) >= s.limit {
			break
		}
	}
	return all, nil
}

func (s *sources) page(ctx context.Context, addr, after string) (l console.Listing, err error) {
	q := url.Values{}
	if s.topic != "" {
		q.Set("topic", s.topic)
	}
	if after != "" {
		q.Set("after", after)
	}
	if s.limit > 0 {
		q.Set("limit", strconv.Itoa(min(s.limit, console.MaxPartitions)))
	}
	u := url.URL{Scheme: "http", Host: addr, Path: "/v1/partitions", RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return l, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which the caller names
		}
		return l, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, watchBodyBytes))
	switch {
	case err != nil:
		return l, err
	case resp.StatusCode != http.StatusOK:
		return l, fmt.Errorf("%s: %s", resp.Status, printable(strings.TrimSpace(string(body[:min(len(body), 200)]))))
	}
	if err := json.Unmarshal(body, &l); err != nil {
		return l, fmt.Errorf("the answer is not that of a kbroker: %w", err)
	}
	return l, nil
}

// noTopic says why there is nothing to show. Each broker shows what it hosts.
func noTopic(topic string) string {
	return fmt.Sprintf("there is no such topic: %s (none of the brokers that answer has a partition of it)", printable(topic))
}

// watchOnce prints the table, and on silent who does not answer; it fails where
// nobody answers, or nobody has the topic.
func watchOnce(ctx context.Context, out, silent io.Writer, o watchOptions) error {
	s := newSources(o, 0)
	s.once(ctx)
	list := s.latest()
	answered := false
	var errs []error
	for _, x := range list {
		if x.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w (is kbroker.http.listener set there?)", x.addr, x.err))
			continue
		}
		answered = true
	}
	if !answered {
		return errors.Join(errs...)
	}
	for _, err := range errs {
		fmt.Fprintln(silent, printable(err.Error()))
	}
	rows := rowsOf(list)
	if len(rows) == 0 && o.topic != "" {
		return errors.New(noTopic(o.topic))
	}
	for _, line := range table(rows, nil).lines() {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func someAnswer(list []seen) bool {
	return slices.ContainsFunc(list, func(x seen) bool { return x.err == nil })
}

// watchLines prints a line for each row that changed, and for each broker that
// comes or goes.
func watchLines(ctx context.Context, out io.Writer, o watchOptions) error {
	s := newSources(o, 0)
	wait := s.keep(ctx, o.every)
	defer wait()
	shown := map[string]string{}
	say := func(subject, text string) {
		if shown[subject] != text {
			shown[subject] = text
			fmt.Fprintln(out, time.Now().Format("15:04:05.000"), text)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.every):
		}
		list := s.latest()
		for _, x := range list {
			switch {
			case x.err == nil:
				say(x.addr, fmt.Sprintf("%s: broker %d", x.addr, x.listing.Broker))
			case !errors.Is(x.err, errNotAsked):
				say(x.addr, fmt.Sprintf("%s: %v", x.addr, x.err))
			}
		}
		rows := rowsOf(list)
		if len(rows) == 0 && o.topic != "" && someAnswer(list) {
			say("", noTopic(o.topic))
		} else {
			delete(shown, "")
		}
		for _, r := range rows {
			say(r.name(), r.sentence())
		}
	}
}

// watchScreen redraws a terminal until ctx ends, and leaves it as it was.
func watchScreen(ctx context.Context, out io.Writer, size func() (w, h int), o watchOptions) error {
	_, height := size()
	s := newSources(o, max(height, 200)) // every broker's first rows hold the first of all
	wait := s.keep(ctx, o.every)
	defer wait()
	const enter, leave = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
	if _, err := io.WriteString(out, enter); err != nil {
		return err
	}
	defer io.WriteString(out, leave)
	rates := &rates{}
	for {
		w, h := size()
		list := s.latest()
		if _, err := io.WriteString(out, frame(list, o.topic, rates, time.Now(), w, h)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.every):
		}
	}
}
