package loop

import (
	"time"

	"github.com/kbroker/kbroker/zkmeta"
)

// vacancy is a time in which nobody is the controller.
type vacancy struct{ _ byte } // of a size, so that no two have one address

// tellVacancyAgain is how long it is before one that lasts is told of again.
const tellVacancyAgain = time.Minute

// vacated has it told if nobody becomes the controller in due time.
func (l *Loop) vacated() {
	if l.vacancy == nil {
		l.vacancy = &vacancy{}
		l.tellVacancyIn(l.opts.VacantAfter)
	}
}

func (l *Loop) tellVacancyIn(d time.Duration) {
	v := l.vacancy
	l.opts.Clock.AfterFunc(d, func() { l.inbox.put(unled{v}) })
}

// unled tells who could become the controller: without one no leader is elected and
// clients get no metadata. What cannot be read now is told of the next time.
func (l *Loop) unled(m unled) {
	if l.vacancy != m.of || l.vacancy == nil {
		return
	}
	l.tellVacancyIn(tellVacancyAgain)
	s, err := l.opts.Store.Session()
	if err != nil {
		return
	}
	names, _, err := s.Children(l.ctx, zkmeta.BrokerIDsPath, false)
	if err != nil {
		return
	}
	l.opts.Logger.Warn().Strs("registered", names).Bool("eligible", !l.opts.Ineligible).
		Msg("there is no controller: no leader is elected and brokers that start answer no metadata, until a registered broker may be one (kbroker.controller.eligible is not false)")
}
