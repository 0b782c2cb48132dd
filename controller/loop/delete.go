package loop

import (
	"errors"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
)

// deleteTopic removes a topic's znodes from the leaves up, and last, in one
// multi, its assignment, its configs and the mark that asked for the deletion:
// a controller that dies before that leaves the mark, and the next one goes on.
func (t *term) deleteTopic(topic string) (controller.Result, error) {
	below := t.usuallyBelow
	for range 3 {
		done, err := t.tryDeleteTopic(topic, below)
		switch err = moved(err); {
		case done:
			delete(t.parents, topic)
			return controller.Result{Accepted: true}, nil
		case errors.Is(err, zkmeta.ErrNoNode), errors.Is(err, zkmeta.ErrNotEmpty), errors.Is(err, zkmeta.ErrUnknownOutcome):
			below = t.allBelow // the tree is not as expected: look closer
		case err != nil:
			return controller.Result{}, err
		}
	}
	return controller.Result{}, nil
}

// usuallyBelow is what is below a partition's znode as a rule, leaves first,
// itself last.
func (t *term) usuallyBelow(path string) ([]string, error) {
	return []string{path + "/state", path}, nil
}

// allBelow reads what is there.
func (t *term) allBelow(path string) ([]string, error) {
	children, err := t.children(path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, child := range children {
		below, err := t.allBelow(child)
		if err != nil {
			return nil, err
		}
		paths = append(paths, below...)
	}
	return append(paths, path), nil
}

func (t *term) tryDeleteTopic(topic string, below func(path string) ([]string, error)) (done bool, err error) {
	partitions, err := t.children(zkmeta.PartitionsPath(topic))
	if err != nil {
		return false, err
	}
	units := make([][]zkmeta.Op, len(partitions))
	for i, path := range partitions {
		paths, err := below(path)
		if err != nil {
			return false, err
		}
		for _, p := range paths {
			units[i] = append(units[i], zkmeta.Delete(p, cluster.AnyZKVersion))
		}
	}
	for _, o := range zkmeta.WriteEach(t.ctx, t.session, t.guard(), units) {
		if o.Err != nil {
			return false, o.Err
		}
	}
	var last []zkmeta.Op
	for _, path := range []string{
		zkmeta.PartitionsPath(topic), zkmeta.TopicPath(topic),
		zkmeta.ConfigEntityPath(zkmeta.TopicConfigs, topic), zkmeta.DeleteTopicPath(topic),
	} {
		_, there, err := t.session.Exists(t.ctx, path, false)
		if err != nil {
			return false, err
		}
		if there {
			last = append(last, zkmeta.Delete(path, cluster.AnyZKVersion))
		}
	}
	if len(last) == 0 {
		return true, nil
	}
	_, err = t.session.Multi(t.ctx, append(t.guard(), last...)...)
	return err == nil, err
}

func (t *term) children(path string) ([]string, error) {
	names, _, err := t.session.Children(t.ctx, path, false)
	if errors.Is(err, zkmeta.ErrNoNode) {
		return nil, nil
	}
	paths := slices.Clone(names)
	for i, name := range paths {
		paths[i] = path + "/" + name
	}
	return paths, err
}

func (t *term) forgetDeletion(topic string) (controller.Result, error) {
	_, err := t.session.Multi(t.ctx, append(t.guard(), zkmeta.Delete(zkmeta.DeleteTopicPath(topic), cluster.AnyZKVersion))...)
	switch err = moved(err); {
	case err == nil, errors.Is(err, zkmeta.ErrNoNode):
		return controller.Result{Accepted: true}, nil
	case errors.Is(err, zkmeta.ErrUnknownOutcome):
		t.todo.deletions = true
		return controller.Result{}, nil
	}
	return controller.Result{}, err
}
