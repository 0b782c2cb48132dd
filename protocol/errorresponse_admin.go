package protocol

import "github.com/twmb/franz-go/pkg/kmsg"

// admin fills the answers to administrative requests.
func (e failure) admin(req kmsg.Request, resp kmsg.Response) bool {
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		r := resp.(*kmsg.CreateTopicsResponse)
		for _, t := range req.Topics {
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode, topic.ErrorMessage = t.Topic, e.code, e.message
			topic.NumPartitions, topic.ReplicationFactor = -1, -1
			topic.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // empty, not null
			r.Topics = append(r.Topics, topic)
		}
	case *kmsg.DeleteTopicsRequest:
		e.deleteTopics(req, resp.(*kmsg.DeleteTopicsResponse))
	case *kmsg.CreatePartitionsRequest:
		r := resp.(*kmsg.CreatePartitionsResponse)
		for _, t := range req.Topics {
			topic := kmsg.NewCreatePartitionsResponseTopic()
			topic.Topic, topic.ErrorCode, topic.ErrorMessage = t.Topic, e.code, e.message
			r.Topics = append(r.Topics, topic)
		}
	case *kmsg.ElectLeadersRequest:
		e.electLeaders(req, resp.(*kmsg.ElectLeadersResponse))
	case *kmsg.AlterPartitionAssignmentsRequest:
		e.alterReassignments(req, resp.(*kmsg.AlterPartitionAssignmentsResponse))
	case *kmsg.ListPartitionReassignmentsRequest:
		e.listReassignments(req, resp.(*kmsg.ListPartitionReassignmentsResponse))
	case *kmsg.AlterReplicaLogDirsRequest:
		e.alterReplicaLogDirs(req, resp.(*kmsg.AlterReplicaLogDirsResponse))
	default:
		return e.configs(req, resp) || e.security(req, resp)
	}
	return true
}

func (e failure) deleteTopics(req *kmsg.DeleteTopicsRequest, resp *kmsg.DeleteTopicsResponse) {
	add := func(name *string, id [16]byte) {
		topic := kmsg.NewDeleteTopicsResponseTopic()
		topic.Topic, topic.TopicID, topic.ErrorCode = name, id, e.code
		topic.ErrorMessage = e.message
		resp.Topics = append(resp.Topics, topic)
	}
	for i := range req.TopicNames {
		add(&req.TopicNames[i], [16]byte{})
	}
	for _, t := range req.Topics {
		add(t.Topic, t.TopicID)
	}
}

func (e failure) electLeaders(req *kmsg.ElectLeadersRequest, resp *kmsg.ElectLeadersResponse) {
	resp.ErrorCode = e.code
	for _, t := range req.Topics {
		topic := kmsg.NewElectLeadersResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewElectLeadersResponseTopicPartition()
			part.Partition, part.ErrorCode, part.ErrorMessage = p, e.code, e.message
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) alterReassignments(req *kmsg.AlterPartitionAssignmentsRequest, resp *kmsg.AlterPartitionAssignmentsResponse) {
	resp.ErrorCode, resp.ErrorMessage = e.code, e.message
	for _, t := range req.Topics {
		topic := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			part.Partition, part.ErrorCode, part.ErrorMessage = p.Partition, e.code, e.message
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) listReassignments(req *kmsg.ListPartitionReassignmentsRequest, resp *kmsg.ListPartitionReassignmentsResponse) {
	resp.ErrorCode, resp.ErrorMessage = e.code, e.message
	for _, t := range req.Topics {
		topic := kmsg.NewListPartitionReassignmentsResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			part.Partition = p
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (e failure) alterReplicaLogDirs(req *kmsg.AlterReplicaLogDirsRequest, resp *kmsg.AlterReplicaLogDirsResponse) {
	for _, d := range req.Dirs {
		for _, t := range d.Topics {
			topic := kmsg.NewAlterReplicaLogDirsResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				part := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				part.Partition, part.ErrorCode = p, e.code
				topic.Partitions = append(topic.Partitions, part)
			}
			resp.Topics = append(resp.Topics, topic)
		}
	}
}

func (e failure) configs(req kmsg.Request, resp kmsg.Response) bool {
	switch req := req.(type) {
	case *kmsg.DescribeConfigsRequest:
		r := resp.(*kmsg.DescribeConfigsResponse)
		for _, x := range req.Resources {
			res := kmsg.NewDescribeConfigsResponseResource()
			res.ErrorCode, res.ErrorMessage, res.ResourceType, res.ResourceName = e.code, e.message, x.ResourceType, x.ResourceName
			r.Resources = append(r.Resources, res)
		}
	case *kmsg.AlterConfigsRequest:
		r := resp.(*kmsg.AlterConfigsResponse)
		for _, x := range req.Resources {
			res := kmsg.NewAlterConfigsResponseResource()
			res.ErrorCode, res.ErrorMessage, res.ResourceType, res.ResourceName = e.code, e.message, x.ResourceType, x.ResourceName
			r.Resources = append(r.Resources, res)
		}
	case *kmsg.IncrementalAlterConfigsRequest:
		r := resp.(*kmsg.IncrementalAlterConfigsResponse)
		for _, x := range req.Resources {
			res := kmsg.NewIncrementalAlterConfigsResponseResource()
			res.ErrorCode, res.ErrorMessage, res.ResourceType, res.ResourceName = e.code, e.message, x.ResourceType, x.ResourceName
			r.Resources = append(r.Resources, res)
		}
	default:
		return false
	}
	return true
}

func (e failure) security(req kmsg.Request, resp kmsg.Response) bool {
	switch req := req.(type) {
	case *kmsg.CreateACLsRequest:
		r := resp.(*kmsg.CreateACLsResponse)
		for range req.Creations {
			res := kmsg.NewCreateACLsResponseResult()
			res.ErrorCode, res.ErrorMessage = e.code, e.message
			r.Results = append(r.Results, res)
		}
	case *kmsg.DeleteACLsRequest:
		r := resp.(*kmsg.DeleteACLsResponse)
		for range req.Filters {
			res := kmsg.NewDeleteACLsResponseResult()
			res.ErrorCode, res.ErrorMessage = e.code, e.message
			r.Results = append(r.Results, res)
		}
	case *kmsg.AlterClientQuotasRequest:
		e.alterClientQuotas(req, resp.(*kmsg.AlterClientQuotasResponse))
	case *kmsg.DescribeUserSCRAMCredentialsRequest:
		r := resp.(*kmsg.DescribeUserSCRAMCredentialsResponse)
		r.ErrorCode, r.ErrorMessage = e.code, e.message
		for _, u := range req.Users {
			res := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
			res.User, res.ErrorCode, res.ErrorMessage = u.Name, e.code, e.message
			r.Results = append(r.Results, res)
		}
	case *kmsg.AlterUserSCRAMCredentialsRequest:
		r := resp.(*kmsg.AlterUserSCRAMCredentialsResponse)
		for _, name := range users(req) {
			res := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
			res.User, res.ErrorCode, res.ErrorMessage = name, e.code, e.message
			r.Results = append(r.Results, res)
		}
	default:
		return false
	}
	return true
}

func (e failure) alterClientQuotas(req *kmsg.AlterClientQuotasRequest, resp *kmsg.AlterClientQuotasResponse) {
	for _, x := range req.Entries {
		entry := kmsg.NewAlterClientQuotasResponseEntry()
		entry.ErrorCode, entry.ErrorMessage = e.code, e.message
		for _, y := range x.Entity {
			entity := kmsg.NewAlterClientQuotasResponseEntryEntity()
			entity.Type, entity.Name = y.Type, y.Name
			entry.Entity = append(entry.Entity, entity)
		}
		resp.Entries = append(resp.Entries, entry)
	}
}
